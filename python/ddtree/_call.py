# SPDX-License-Identifier: Apache-2.0
"""One call under way: checks its arrays, notes where they are, and fills the C structs."""

import ctypes
import math
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _arrays
from ._arrays import Array, Device, View
from ._library import check, constants, default, library, structs
from ._types import Accepted, Candidates, Context, KvTable, Shape, Tree, _Group

_DTYPE = {
    "u8": constants["DTYPE_U8"],
    "bool": constants["DTYPE_U8"],
    "i32": constants["DTYPE_I32"],
    "i64": constants["DTYPE_I64"],
    "f32": constants["DTYPE_F32"],
    "f16": constants["DTYPE_F16"],
    "bf16": constants["DTYPE_BF16"],
}
_IDS = ("i32", "i64")
_BITS = ("u32", "i32")
_FLOATS = ("f32", "f16", "bf16")


class Call:
    def __init__(self, name: str, shape: Shape, ctx: Optional[Context]) -> None:
        self.name = name
        self.shape = shape
        self.ctx = ctx
        self.device: Optional[Device] = ctx.device if ctx else None
        self.first: Any = None  # an array like which new ones are made
        self.keep: List[Any] = []

    def error(self, text: str) -> ValueError:
        return ValueError(f"{self.name}: {text}")

    def view(
        self,
        array: Array,
        name: str,
        types: Sequence[str],
        extents: Optional[Tuple[int, ...]] = None,
        out: bool = False,
    ) -> View:
        """Checks type and device; with ``extents``, that it is dense and of that shape."""
        v = _arrays.view(array, f"{self.name}: {name}")
        if v.type not in types:
            raise self.error(f"{name} is {v.type}, {' or '.join(types)} is wanted")
        if extents is not None and v.shape != extents:
            raise self.error(f"{name} has shape {v.shape}, {extents} is wanted")
        if extents is not None and not v.is_dense:
            raise self.error(f"{name} is not contiguous")
        if out and v.read_only:
            raise self.error(f"{name} is read-only")
        if self.device is None:
            self.device = v.device
        elif self.device != v.device:
            raise self.error(f"{name} is on {v.device}, the others on {self.device}")
        if self.first is None:
            self.first = array
        self.keep.append(v.owner)
        return v

    def address(
        self,
        array: Optional[Array],
        name: str,
        type_: str,
        extents: Tuple[int, ...],
        out: bool = False,
    ) -> Optional[int]:
        if array is None:
            return None
        types = _BITS if type_ == "u32" else (type_,)
        return self.view(array, name, types, extents, out).address

    def group(self, value: _Group, name: str, out: bool = False) -> Any:
        """The C struct of Candidates, Tree or Accepted."""
        names = {Candidates: "candidates", Tree: "draft_tree", Accepted: "accepted"}
        struct = structs[names[type(value)]]()
        for member, (extents, type_) in type(value).layout(self.shape).items():
            address = self.address(getattr(value, member), f"{name}.{member}", type_, extents, out)
            setattr(struct, member, address)
        return struct

    def ids(
        self, array: Optional[Array], name: str, extents: Tuple[int, ...], out: bool = False
    ) -> Any:
        struct = default("ids_out" if out else "ids_in")
        if array is not None:
            v = self.view(array, name, _IDS, extents, out)
            struct.data, struct.type = v.address, _DTYPE[v.type]
        return struct

    def batch(self, cache_len: Optional[Array], request: Optional[Array]) -> Any:
        return structs["batch_view"](
            self.ids(cache_len, "cache_len", (self.shape.request_rows,)),
            self.ids(request, "request", (self.shape.batch,)),
        )

    def logits(self, array: Array, name: str, rows: int) -> Any:
        """[batch, rows, vocab]; for a batch of one also [rows, vocab]. Rows may be strided."""
        v = self.view(array, name, _FLOATS)
        wanted = (self.shape.batch, rows)
        shape, strides = v.shape, v.strides
        if len(shape) == 2 and self.shape.batch == 1:
            shape, strides = (1, *shape), (0, *strides)
        if len(shape) != 3 or shape[:2] != wanted:
            raise self.error(f"{name} has shape {v.shape}, {(*wanted, 'vocab')} is wanted")
        if shape[2] > 1 and strides[2] != 1:
            raise self.error(f"{name} has rows that are not contiguous")
        row = strides[1] if rows > 1 else max(shape[2], 1)
        batch_stride = 0
        if self.shape.batch > 1:
            if rows == 1:
                row = strides[0]
            if strides[0] % row:
                raise self.error(f"{name} has requests that are no whole number of rows apart")
            batch_stride = strides[0] // row
        return default(
            "logits_view",
            data=v.address,
            type=_DTYPE[v.type],
            vocab=shape[2],
            row_stride=row,
            batch_stride=batch_stride,
        )

    def mask(
        self,
        array: Array,
        region: str,
        masked_value: float,
        window: int,
    ) -> Any:
        """[batch, width, columns] or [batch, 1, width, columns]; what it is tells its type."""
        v = self.view(array, "out", (*_BITS, "u8", "bool", *_FLOATS), out=True)
        shape, strides = v.shape, v.strides
        if len(shape) == 4 and shape[1] == 1:
            shape, strides = (shape[0], *shape[2:]), (strides[0], *strides[2:])
        if len(shape) != 3 or shape[:2] != (self.shape.batch, self.shape.width):
            wanted = (self.shape.batch, self.shape.width, "columns")
            raise self.error(f"out has shape {v.shape}, {wanted} is wanted")
        if shape[2] > 1 and strides[2] != 1:
            raise self.error("out has rows that are not contiguous")
        bits = v.type in _BITS
        kind = "BITS" if bits else "BOOLEAN" if v.type in ("u8", "bool") else "ADDITIVE"
        columns = shape[2] * 32 if bits else shape[2]
        if region == "tree" and shape[2] != (self.shape.words if bits else self.shape.width):
            raise self.error(f"out has {shape[2]} columns, those of the tree are wanted")
        return default(
            "mask_view",
            data=v.address,
            kind=constants[f"MASK_KIND_{kind}"],
            type=_DTYPE.get(v.type, 0) if not bits else 0,
            region=self.choice("MASK_COLUMNS", region, "region"),
            columns=columns,
            row_stride=strides[1] if self.shape.width > 1 else shape[2],
            batch_stride=strides[0] if self.shape.batch > 1 else 0,
            masked_value=masked_value,
            window=window,
        )

    def table(self, table: Optional[KvTable], name: str) -> Any:
        struct = default("kv_table")
        if table is None:
            return struct
        v = _arrays.view(table.entries, f"{self.name}: {name}.entries")
        if len(v.shape) != 2:
            raise self.error(f"{name}.entries has shape {v.shape}, (requests, columns) is wanted")
        extents = (self.shape.request_rows, v.shape[1])
        struct.entries = self.ids(table.entries, f"{name}.entries", extents, out=True)
        struct.columns = v.shape[1]
        for member in ("page_size", "entry_mask", "entry_scale", "index_only"):
            setattr(struct, member, getattr(table, member))
        return struct

    def choice(self, enum: str, value: str, name: str) -> int:
        code = constants.get(f"{enum}_{value.upper()}")
        if code is None:
            raise self.error(f"{name} is {value!r}, which is none")
        return code

    def by_request(self, value: Union[None, float, Array], name: str) -> Optional[int]:
        """A float32 array, [requests]."""
        return self.address(value, name, "f32", (self.shape.request_rows,))

    def context(self) -> Any:
        ctx = self.ctx or Context(self.device if self.device is not None else "cpu")
        return ctx.c

    def workspace(self, context: Any, given: Optional[Array]) -> Any:
        """The caller's, or one that lives as long as the call: enough, since what frees it works
        on the same stream."""
        struct = structs["workspace"]()
        if given is not None:
            v = self.view(given, "workspace", ("u8",), None, out=True)
            if not v.is_dense:
                raise self.error("workspace is not contiguous")
            struct.data, struct.bytes = v.address, math.prod(v.shape)
            return struct
        function = getattr(library, f"ddtree_{self.name}_workspace_bytes")
        needed = function(ctypes.byref(context), ctypes.byref(self.shape.c))
        if needed:
            memory = _arrays.empty(self.first, (needed,), "u8", f"{self.name}: workspace")
            struct.data, struct.bytes = self.address(memory, "workspace", "u8", (needed,)), needed
        return struct

    def run(self, *arguments: Any) -> None:
        """Calls ddtree_<name>; a struct that the header takes by pointer is given as it is."""
        function = getattr(library, f"ddtree_{self.name}")
        check(function(*(_pass(a, t) for a, t in zip(arguments, function.argtypes))))


def _pass(argument: Any, type_: Any) -> Any:
    wants_pointer = getattr(type_, "_type_", None) is type(argument)
    return ctypes.byref(argument) if wants_pointer else argument
