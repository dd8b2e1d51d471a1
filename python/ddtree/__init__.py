# SPDX-License-Identifier: Apache-2.0
"""DDTree speculative decoding: five operations on device memory.

Arrays are torch tensors, NumPy arrays, or anything with ``__cuda_array_interface__`` or
``__dlpack__``; none is copied. On a GPU the work goes to torch's current stream, or to the one that
a Context names.
"""

from typing import List, Tuple

from ._arrays import Array, Device
from ._library import Error, constants, library, structs
from ._operations import (
    KvTensors,
    accept_greedy,
    accept_sampled,
    accept_tokens,
    advance,
    build_tree,
    compact_kv,
    compact_rows,
    expand,
    link_tree,
    write_mask,
    write_verify_inputs,
)
from ._round import Round
from ._types import Accepted, Candidates, Context, KvTable, Shape, Tree

__all__ = [
    "Accepted",
    "Array",
    "Candidates",
    "Context",
    "Device",
    "Error",
    "KvTable",
    "KvTensors",
    "Round",
    "Shape",
    "Tree",
    "accept_greedy",
    "accept_sampled",
    "accept_tokens",
    "advance",
    "build_tree",
    "compact_kv",
    "compact_rows",
    "compiled_architectures",
    "constants",
    "expand",
    "library",
    "link_tree",
    "structs",
    "variants",
    "write_mask",
    "write_verify_inputs",
]

_number: int = library.ddtree_version()
__version__ = f"{_number // 10000}.{_number // 100 % 100}.{_number % 100}"


def variants(backend: str = "cpu") -> List[Tuple[str, str]]:
    """(call, variant) of all variants of this build for "cpu" or "cuda", in order of choice."""
    kind = constants[f"BACKEND_KIND_{backend.upper()}"]
    out = (structs["variant_info"] * library.ddtree_variants(kind, None, 0))()
    library.ddtree_variants(kind, out, len(out))
    return [(library.ddtree_operation_name(v.op).decode(), v.name.decode()) for v in out]


def compiled_architectures() -> List[int]:
    """Compute capabilities with code in this build, such as 90; empty without CUDA."""
    import ctypes

    out = (ctypes.c_int32 * library.ddtree_compiled_architectures(None, 0))()
    library.ddtree_compiled_architectures(out, len(out))
    return list(out)
