# SPDX-License-Identifier: Apache-2.0
"""Shapes, contexts and the groups of arrays that calls hand to each other."""

import dataclasses
import math
from typing import Any, Optional, Tuple, Type, TypeVar

from . import _arrays
from ._arrays import Array, Device
from ._library import default, library


@dataclasses.dataclass(frozen=True)
class Shape:
    """The extents of a round; ``ddtree::round_shape``.

    ``batch`` rows of requests, ``depth`` drafted positions, ``top_k`` candidates for each,
    ``budget`` drafted nodes at most, ``requests`` rows of the per-request arrays (0 = batch).
    """

    vocab: int
    batch: int = 1
    depth: int = 15
    top_k: int = 64
    budget: int = 64
    requests: int = 0
    c: Any = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = ("batch", "vocab", "depth", "top_k", "budget", "requests")
        struct = default("round_shape", **{name: getattr(self, name) for name in names})
        object.__setattr__(self, "c", struct)

    @property
    def width(self) -> int:
        """Verify rows per request: the root and the drafted nodes."""
        return self.budget + 1

    @property
    def words(self) -> int:
        """32-bit words of a row of ancestor bits."""
        return (self.width + 31) // 32

    @property
    def request_rows(self) -> int:
        """Rows of the per-request arrays."""
        return self.requests or self.batch


@dataclasses.dataclass(frozen=True)
class Context:
    """Where a call runs. Without one it runs where its arrays are: on the CPU with one thread, or
    on their CUDA device, on torch's current stream.

    ``stream`` is a cudaStream_t as an integer; ``variant`` forces variants ("expand=stream").
    """

    device: Device = "cpu"
    stream: Optional[int] = None
    threads: int = 1
    variant: Optional[str] = None

    @property
    def c(self) -> Any:
        if self.device == "cpu":
            struct = library.ddtree_context_cpu(self.threads)
        elif isinstance(self.device, int):
            stream = self.stream
            if stream is None:
                stream = _arrays.current_stream(self.device)
            struct = library.ddtree_context_cuda(self.device, stream)
        else:
            raise ValueError(f'ctx.device is {self.device!r}: "cpu" or a CUDA ordinal is wanted')
        if self.variant is not None:
            struct.variant = self.variant.encode()
        return struct


_T = TypeVar("_T", bound="_Group")


class _Group:
    """Arrays with a shape and a type each, as ``layout`` says."""

    @classmethod
    def layout(cls, shape: Shape) -> "dict[str, Tuple[Tuple[int, ...], str]]":
        raise NotImplementedError

    @classmethod
    def empty(cls: Type[_T], shape: Shape, like: Array) -> _T:
        """New arrays of the framework and on the device of ``like``; torch and NumPy only."""
        arrays = {
            name: _arrays.empty(like, extents, type_, f"{cls.__name__}.{name}")
            for name, (extents, type_) in cls.layout(shape).items()
        }
        return cls(**arrays)

    @classmethod
    def over(cls: Type[_T], shape: Shape, struct: Any, memory: Array) -> _T:
        """The arrays that a C struct has in ``memory``, as views of it."""
        base = _arrays.view(memory, "memory").address
        sizes = {"i32": 4, "u32": 4, "f32": 4}
        arrays: "dict[str, Any]" = {}
        for name, (extents, type_) in cls.layout(shape).items():
            address = getattr(struct, name)
            if address is None:
                arrays[name] = None
                continue
            begin = address - base
            piece = memory[begin : begin + math.prod(extents) * sizes[type_]]
            arrays[name] = piece.view(_dtype(memory, type_)).reshape(extents)
        return cls(**arrays)


def _dtype(like: Array, type_: str) -> Any:
    names = {"i32": "int32", "u32": "uint32", "f32": "float32"}
    if _arrays.is_torch(like):
        import torch

        return getattr(torch, names["i32" if type_ == "u32" else type_])
    return names[type_]


@dataclasses.dataclass
class Candidates(_Group):
    """The most probable tokens of each drafted position, in rank order."""

    token: Array  #: [batch, depth, top_k] int32
    log_prob: Array  #: [batch, depth, top_k] float32
    flags: Array  #: [batch], bits of FLAG_...

    @classmethod
    def layout(cls, shape: Shape) -> "dict[str, Tuple[Tuple[int, ...], str]]":
        rows = (shape.batch, shape.depth, shape.top_k)
        return {"token": (rows, "i32"), "log_prob": (rows, "f32"), "flags": ((shape.batch,), "u32")}


@dataclasses.dataclass
class Tree(_Group):
    """A tree of drafted tokens per request, in best-first order; rows beyond ``num_nodes`` are
    padding. Node i has position cache_len + depth[i] and KV slot cache_len + i."""

    token: Array  #: [batch, width] int32, as all but log_weight
    parent: Array  #: row of the parent, -1 at the root
    depth: Array  #: 0 at the root
    rank: Array  #: among the candidates of its depth, -1 at the root
    log_weight: Array  #: [batch, width] float32
    first_child: Array  #: -1 = none
    next_sibling: Array  #: -1 = none
    ancestors: Array  #: [batch, width, words], bit j of row i: j is i or an ancestor of i
    num_nodes: Array  #: [batch], root included
    flags: Array  #: [batch], bits of FLAG_...

    @classmethod
    def layout(cls, shape: Shape) -> "dict[str, Tuple[Tuple[int, ...], str]]":
        rows = (shape.batch, shape.width)
        names = "token parent depth rank log_weight first_child next_sibling".split()
        layout = {name: (rows, "f32" if name == "log_weight" else "i32") for name in names}
        ancestors: "dict[str, Tuple[Tuple[int, ...], str]]" = {
            "ancestors": ((*rows, shape.words), "u32"),
            "num_nodes": ((shape.batch,), "i32"),
            "flags": ((shape.batch,), "u32"),
        }
        return {**layout, **ancestors}


@dataclasses.dataclass
class Accepted(_Group):
    """The walk that the target confirmed. ``num_accepted`` counts drafted nodes only; the bonus is
    the root of the next round."""

    path: Array  #: [batch, depth + 1] int32, path[0] = 0, then -1
    num_accepted: Array  #: [batch] int32, -1 = inactive
    token: Array  #: [batch, depth + 1] int32: accepted tokens, the bonus, then -1
    bonus: Array  #: [batch] int32
    log_prob: Optional[Array]  #: [batch, depth + 1] float32; None = not computed
    flags: Array  #: [batch], bits of FLAG_...

    @classmethod
    def layout(cls, shape: Shape) -> "dict[str, Tuple[Tuple[int, ...], str]]":
        rows, batch = (shape.batch, shape.depth + 1), (shape.batch,)
        return {
            "path": (rows, "i32"),
            "num_accepted": (batch, "i32"),
            "token": (rows, "i32"),
            "bonus": (batch, "i32"),
            "log_prob": (rows, "f32"),
            "flags": (batch, "u32"),
        }


@dataclasses.dataclass(frozen=True)
class KvTable:
    """A block table or slot list: ``entries`` [requests, columns], int32 or int64. Slot s of a
    request stands in row s % page_size of the page that entry s // page_size names."""

    entries: Array
    page_size: int = 1
    entry_mask: int = -1
    entry_scale: int = 1
    index_only: bool = False
