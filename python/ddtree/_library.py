# SPDX-License-Identifier: Apache-2.0
"""The shared library, with the declarations of its C header.

ddtree.h is read when the package is imported, so there is no second list of structs and functions
that could differ from it. The header is regular on purpose; what this cannot read is an error.
"""

import ctypes
import pathlib
import re
from typing import Any, Dict

_folder = pathlib.Path(__file__).parent
_scalars: Dict[str, Any] = {
    "void": None,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "size_t": ctypes.c_size_t,
}

#: Every enumerator and limit: constants["DTYPE_BF16"].
constants: Dict[str, int] = {}
#: Every struct: structs["round_shape"] is a ctypes.Structure.
structs: Dict[str, Any] = {}


def _type(text: str, typed_pointers: bool) -> Any:
    """The ctypes type of "T", "T const*" or "T*". Arrays are addresses."""
    name = text.replace("const", "").replace("struct ", "").replace("*", "").strip()
    short = name[len("ddtree_") :] if name.startswith("ddtree_") else name
    if "*" in text:
        if name == "char":
            return ctypes.c_char_p
        return (
            ctypes.POINTER(structs[short])
            if typed_pointers and short in structs
            else ctypes.c_void_p
        )
    return structs[short] if short in structs else _scalars[name]


def _declaration(text: str, typed_pointers: bool) -> Any:
    """Name and ctypes type of "T name" or "T name[2]"."""
    kind, name, extent = re.fullmatch(r"(.*?)(\w+)(?:\[(\d+)\])?", text.strip()).groups()  # type: ignore[union-attr]
    result = _type(kind, typed_pointers)
    return name, result * int(extent) if extent else result


def _read(header: str, library: ctypes.CDLL) -> None:
    header = re.sub(r"//[^\n]*|^#.*$", "", header, flags=re.M)
    for name, value, shift in re.findall(r"DDTREE_(\w+) = (\d+)(?: << (\d+))?", header):
        constants[name] = int(value) << int(shift or 0)
    statements = (
        r"typedef (\w+) (\w+);"
        r"|typedef struct \w+ \{([^}]*)\} ddtree_(\w+);"
        r"|DDTREE_API ([^()]*?)(ddtree_\w+)\(([^)]*)\);"
    )
    for old, new, members, struct, result, function, parameters in re.findall(statements, header):
        if new:
            _scalars[new] = _scalars[old]
        elif struct:
            fields = [_declaration(m, False) for m in members.split(";") if m.strip()]
            structs[struct] = type(struct, (ctypes.Structure,), {"_fields_": fields})
        else:
            entry = getattr(library, function)
            entry.restype = _type(result, True)
            entry.argtypes = [
                _declaration(" ".join(p.split()), True)[1]
                for p in parameters.split(",")
                if p.strip() != "void"
            ]


library = ctypes.CDLL(str(_folder / "libddtree.so"))
_read((_folder / "ddtree.h").read_text(), library)


class Error(RuntimeError):
    """A call that the library refused; nothing of it was enqueued.

    ``code`` is the name of the ``ddtree::errc``, such as "unsupported"; ``detail`` a cudaError_t or
    a compute capability, as the code says.
    """

    def __init__(self, status: Any) -> None:
        super().__init__(status.message.decode())
        self.code: str = library.ddtree_errc_name(status.code).decode()
        self.detail: int = status.detail


def check(status: Any) -> None:
    if status.code:
        raise Error(status)


def default(struct: str, **members: Any) -> Any:
    """A struct as C++ initialises it, with some members set."""
    value = getattr(library, f"ddtree_{struct}_default")()
    for name, member in members.items():
        setattr(value, name, member)
    return value
