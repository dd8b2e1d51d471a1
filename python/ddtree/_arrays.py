# SPDX-License-Identifier: Apache-2.0
"""Arrays of whatever framework, seen as address, shape and type. Nothing is copied."""

import ctypes
import sys
from typing import Any, NamedTuple, Tuple, Union

#: torch tensors, NumPy arrays, and anything with __cuda_array_interface__ or __dlpack__.
Array = Any

#: "cpu", or the ordinal of a CUDA device.
Device = Union[str, int]

_BYTES = {"u8": 1, "bool": 1, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8}
_TORCH = {"uint8": "u8", "bool": "bool", "float16": "f16", "bfloat16": "bf16", "int32": "i32"}
_TORCH.update({"uint32": "u32", "float32": "f32", "int64": "i64"})
_TYPESTR = {"|u1": "u8", "|b1": "bool", "<f2": "f16", "<i4": "i32", "<u4": "u32", "<f4": "f32"}
_TYPESTR["<i8"] = "i64"
_DLPACK = {(1, 8): "u8", (6, 8): "bool", (2, 16): "f16", (4, 16): "bf16", (0, 32): "i32"}
_DLPACK.update({(1, 32): "u32", (2, 32): "f32", (0, 64): "i64"})


class View(NamedTuple):
    address: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in elements
    type: str
    device: Device
    read_only: bool
    owner: Any  # keeps the memory

    @property
    def itemsize(self) -> int:
        return _BYTES.get(self.type, 0)

    @property
    def is_dense(self) -> bool:
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True


def _dense_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides)) if shape else ()


def _of_torch(tensor: Any) -> View:
    kind = tensor.device.type
    device: Device = tensor.device.index if kind == "cuda" else kind
    name = str(tensor.dtype).split(".")[-1]
    type_ = _TORCH.get(name, name)
    shape = tuple(tensor.shape)
    return View(tensor.data_ptr(), shape, tensor.stride(), type_, device, False, tensor)


def _of_interface(array: Any, interface: Any, device: Device) -> View:
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    typestr = interface["typestr"]
    type_ = _TYPESTR.get(typestr, str(getattr(array, "dtype", typestr)))
    type_ = "bf16" if type_ == "bfloat16" else type_
    strides = interface.get("strides")
    size = int(typestr[2:])
    elements = tuple(s // size for s in strides) if strides else _dense_strides(shape)
    return View(address or 0, shape, elements, type_, device, bool(read_only), array)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _of_dlpack(array: Any) -> View:
    capsule = array.__dlpack__()  # not consumed: its destructor gives the memory back
    t = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tuple(t.shape[: t.ndim])
    strides = tuple(t.strides[: t.ndim]) if t.strides else _dense_strides(shape)
    kind = _DLPACK.get((t.code, t.bits), f"type {t.code} of {t.bits} bits")
    devices = {1: "cpu", 2: t.device_id, 3: "cpu", 13: t.device_id}
    device = devices.get(t.device_type, f"device type {t.device_type}")
    return View(
        (t.data or 0) + t.byte_offset, shape, strides, kind, device, False, (array, capsule)
    )


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def view(array: Array, name: str) -> View:
    """The array as a View; ``name`` is what an error calls it."""
    if is_torch(array):
        return _of_torch(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        device = getattr(getattr(array, "device", None), "id", 0)
        return _of_interface(array, interface, device)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _of_interface(array, interface, "cpu")
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array)
    raise TypeError(
        f"{name} is a {type(array).__name__}, not an array: torch and NumPy arrays are, and "
        "what has __cuda_array_interface__ or __dlpack__"
    )


def empty(like: Array, shape: Tuple[int, ...], type_: str, name: str) -> Array:
    """A new array of the framework and on the device of ``like``."""
    if is_torch(like):
        import torch

        # Bits are int32: many operations of torch have no uint32.
        names = {v: k for k, v in _TORCH.items()}
        dtype = getattr(torch, names["i32" if type_ == "u32" else type_])
        return like.new_empty(shape, dtype=dtype)
    if hasattr(like, "__array_interface__"):
        import numpy

        names = {v: k for k, v in _TORCH.items()}
        return numpy.empty(shape, names[type_])
    raise TypeError(f"{name} must be given: it is made for torch and NumPy only")


def current_stream(device: int) -> int:
    """torch's current stream, where torch is in use."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise ValueError("ctx: without torch the stream must be named: Context(device, stream=...)")
    stream: int = torch.cuda.current_stream(device).cuda_stream
    return stream
