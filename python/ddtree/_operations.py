# SPDX-License-Identifier: Apache-2.0
"""The operations, one function each.

Every function takes arrays of one device, copies none, and enqueues its work on that device's
stream (see Context). What is written goes to ``out`` where it is given; otherwise arrays like the
inputs' are made, which torch does in its own memory pool. Per-request arrays have ``request_rows``
rows. The header of each operation (include/ddtree/*.hpp) has the exact rules.
"""

import ctypes
import math
from typing import Any, Optional, Sequence, Union

from . import _arrays
from ._arrays import Array
from ._call import Call
from ._library import default, structs
from ._types import Accepted, Candidates, Context, KvTable, Shape, Tree


def expand(
    shape: Shape,
    draft: Array,
    *,
    temperature: Union[float, Array] = 1.0,
    vocab_map: Optional[Array] = None,
    bias: Optional[Array] = None,
    cache_len: Optional[Array] = None,
    request: Optional[Array] = None,
    out: Optional[Candidates] = None,
    workspace: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> Candidates:
    """The top_k tokens of every drafted position with their log-probs.

    ``draft``: logits [batch, depth, vocab], float32, float16 or bfloat16; row d - 1 predicts
    depth d. ``temperature``: a number, or float32 by request. ``vocab_map``: draft id to target id,
    -1 = none. ``bias``: float32 [depth, top_k], added to the log-probs in rank order.
    """
    call = Call("expand", shape, ctx)
    logits = call.logits(draft, "draft", shape.depth)
    out = out or Candidates.empty(shape, draft)
    options = default("expand_options")
    if isinstance(temperature, (int, float)):
        options.temperature = temperature
    else:
        options.temperature_by_request = call.by_request(temperature, "temperature")
    if vocab_map is not None:
        options.draft_vocab = _arrays.view(vocab_map, "expand: vocab_map").shape[0]
        options.vocab_map = call.ids(vocab_map, "vocab_map", (options.draft_vocab,))
    options.bias = call.address(bias, "bias", "f32", (shape.depth, shape.top_k))
    batch, to = call.batch(cache_len, request), call.group(out, "out", True)
    context = call.context()
    scratch = call.workspace(context, workspace)
    call.run(context, shape.c, batch, logits, to, scratch, options)
    return out


def build_tree(
    shape: Shape,
    candidates: Candidates,
    root: Array,
    *,
    budget: Optional[Array] = None,
    max_depth: Optional[Array] = None,
    capacity: Optional[Array] = None,
    max_position: Optional[Array] = None,
    seed_depth: int = 0,
    min_log_weight: float = -math.inf,
    cache_len: Optional[Array] = None,
    request: Optional[Array] = None,
    out: Optional[Tree] = None,
    workspace: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> Tree:
    """Each request's tree of the ``budget`` most probable prefixes, in best-first order.

    ``root``: [batch], the token before the first drafted one. ``budget``, ``max_depth``,
    ``capacity`` (KV rows) and ``max_position`` are by request. ``seed_depth``: rank-0 nodes that
    are taken first.
    """
    call = Call("build_tree", shape, ctx)
    source = call.group(candidates, "candidates")
    first = call.ids(root, "root", (shape.batch,))
    out = out or Tree.empty(shape, candidates.token)
    rows = (shape.request_rows,)
    options = default("build_options", seed_depth=seed_depth, min_log_weight=min_log_weight)
    options.budget = call.ids(budget, "budget", rows)
    options.max_depth = call.ids(max_depth, "max_depth", rows)
    options.capacity = call.ids(capacity, "capacity", rows)
    options.max_position = call.ids(max_position, "max_position", rows)
    batch, to = call.batch(cache_len, request), call.group(out, "out", True)
    context = call.context()
    scratch = call.workspace(context, workspace)
    call.run(context, shape.c, batch, source, first, to, scratch, options)
    return out


def link_tree(
    shape: Shape,
    parent: Array,
    token: Array,
    num_nodes: Array,
    *,
    log_weight: Optional[Array] = None,
    cache_len: Optional[Array] = None,
    request: Optional[Array] = None,
    out: Optional[Tree] = None,
    ctx: Optional[Context] = None,
) -> Tree:
    """Completes a tree made elsewhere (EAGLE, n-gram): ``parent`` and ``token`` [batch, width]."""
    call = Call("link_tree", shape, ctx)
    rows = (shape.batch, shape.width)
    nodes = structs["tree_nodes"](
        call.ids(parent, "parent", rows),
        call.ids(token, "token", rows),
        call.ids(num_nodes, "num_nodes", (shape.batch,)),
        call.address(log_weight, "log_weight", "f32", rows),
    )
    out = out or Tree.empty(shape, parent)
    batch, to = call.batch(cache_len, request), call.group(out, "out", True)
    call.run(call.context(), shape.c, batch, nodes, to)
    return out


def write_mask(
    shape: Shape,
    tree: Tree,
    out: Array,
    *,
    region: str = "tree",
    masked_value: float = -math.inf,
    window: int = 0,
    cache_len: Optional[Array] = None,
    request: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> Array:
    """Writes which rows of the tree see which columns, into ``out`` [batch, width, columns] or
    [batch, 1, width, columns]; rows may be strided.

    The type of ``out`` tells the kind: bool or uint8 (1 = visible), float32, float16 or bfloat16
    (0 = visible, else ``masked_value``), int32 or uint32 (bits). ``region``: "tree" (column j is
    node j), "full" (column c is KV slot c; needs ``cache_len``) or "recent".
    """
    call = Call("write_mask", shape, ctx)
    source = call.group(tree, "tree")
    mask = call.mask(out, region, masked_value, window)
    call.run(call.context(), shape.c, call.batch(cache_len, request), source, mask)
    return out


def write_verify_inputs(
    shape: Shape,
    tree: Tree,
    *,
    token: Optional[Array] = None,
    position: Optional[Array] = None,
    slot: Optional[Array] = None,
    padding: str = "minus_one",
    dummy_slot: int = 0,
    capacity: Optional[Array] = None,
    table: Optional[KvTable] = None,
    cache_len: Optional[Array] = None,
    request: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> None:
    """Writes token, position and KV slot of each verify row, [batch, width], where an array is
    given. ``padding`` is what stands in slot for padding rows: "minus_one", "dummy" or
    "in_sequence"."""
    call = Call("write_verify_inputs", shape, ctx)
    source = call.group(tree, "tree")
    rows = (shape.batch, shape.width)
    inputs = structs["verify_inputs"](
        call.ids(token, "token", rows, True),
        call.ids(position, "position", rows, True),
        call.ids(slot, "slot", rows, True),
    )
    options = default(
        "verify_options",
        padding=call.choice("PADDING_SLOT", padding, "padding"),
        dummy_slot=dummy_slot,
        capacity=call.ids(capacity, "capacity", (shape.request_rows,)),
        table=call.table(table, "table"),
    )
    call.run(call.context(), shape.c, call.batch(cache_len, request), source, inputs, options)


def _accept_options(
    call: Call,
    logit_bias: Optional[Array] = None,
    token_bitmask: Optional[Array] = None,
    stop_tokens: Optional[Array] = None,
    remaining: Optional[Array] = None,
    processed_log_prob: bool = False,
) -> Any:
    shape = call.shape
    options = default("accept_options", processed_log_prob=processed_log_prob)
    options.logit_bias = call.address(
        logit_bias, "logit_bias", "f32", (shape.request_rows, shape.vocab)
    )
    words = (shape.vocab + 31) // 32
    options.token_bitmask.data = call.address(
        token_bitmask, "token_bitmask", "u32", (shape.batch, shape.width, words)
    )
    if stop_tokens is not None:
        n = _arrays.view(stop_tokens, f"{call.name}: stop_tokens").shape[-1]
        options.stop_tokens = call.ids(stop_tokens, "stop_tokens", (shape.request_rows, n))
        options.stop_tokens_per_request = n
    options.remaining = call.ids(remaining, "remaining", (shape.request_rows,))
    return options


def _new_accepted(shape: Shape, like: Array, log_prob: bool) -> Accepted:
    made = Accepted.empty(shape, like)
    if not log_prob:
        made.log_prob = None
    return made


def accept_tokens(
    shape: Shape,
    tree: Tree,
    target_token: Array,
    *,
    stop_tokens: Optional[Array] = None,
    remaining: Optional[Array] = None,
    cache_len: Optional[Array] = None,
    request: Optional[Array] = None,
    out: Optional[Accepted] = None,
    ctx: Optional[Context] = None,
) -> Accepted:
    """Walks the tree along tokens that were sampled already, ``target_token`` [batch, width].

    ``stop_tokens``: [requests, n], padded with -1. ``remaining``: tokens that may still be emitted.
    """
    call = Call("accept_tokens", shape, ctx)
    source = call.group(tree, "tree")
    target = call.ids(target_token, "target_token", (shape.batch, shape.width))
    out = out or _new_accepted(shape, target_token, False)
    options = _accept_options(call, stop_tokens=stop_tokens, remaining=remaining)
    batch, to = call.batch(cache_len, request), call.group(out, "out", True)
    call.run(call.context(), shape.c, batch, source, target, to, options)
    return out


def accept_greedy(
    shape: Shape,
    tree: Tree,
    target: Array,
    *,
    log_prob: bool = False,
    logit_bias: Optional[Array] = None,
    token_bitmask: Optional[Array] = None,
    stop_tokens: Optional[Array] = None,
    remaining: Optional[Array] = None,
    processed_log_prob: bool = False,
    cache_len: Optional[Array] = None,
    request: Optional[Array] = None,
    out: Optional[Accepted] = None,
    workspace: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> Accepted:
    """As accept_tokens, the token of a row being the argmax of ``target`` [batch, width, vocab].

    ``logit_bias``: float32 [requests, vocab]. ``token_bitmask``: bits [batch, width, vocab / 32].
    ``log_prob``: also compute that of each emitted token (with ``out``, where its array is there).
    """
    call = Call("accept_greedy", shape, ctx)
    source = call.group(tree, "tree")
    logits = call.logits(target, "target", shape.width)
    out = out or _new_accepted(shape, target, log_prob)
    options = _accept_options(
        call, logit_bias, token_bitmask, stop_tokens, remaining, processed_log_prob
    )
    batch, to = call.batch(cache_len, request), call.group(out, "out", True)
    context = call.context()
    scratch = call.workspace(context, workspace)
    call.run(context, shape.c, batch, source, logits, to, scratch, options)
    return out


def accept_sampled(
    shape: Shape,
    tree: Tree,
    target: Array,
    *,
    temperature: Array,
    seed: Array,
    cache_len: Array,
    top_k: Optional[Array] = None,
    top_p: Optional[Array] = None,
    min_p: Optional[Array] = None,
    order: str = "k_p_min",
    log_prob: bool = False,
    logit_bias: Optional[Array] = None,
    token_bitmask: Optional[Array] = None,
    stop_tokens: Optional[Array] = None,
    remaining: Optional[Array] = None,
    processed_log_prob: bool = False,
    request: Optional[Array] = None,
    out: Optional[Accepted] = None,
    workspace: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> Accepted:
    """As accept_greedy, the token of a row being drawn with Gumbel-max.

    By request: ``temperature`` (float32, 0 = greedy), ``seed`` (int64), ``top_k``, ``top_p``,
    ``min_p``. The noise depends on seed, position and token alone, so the drawn tokens are those
    of plain decoding with the same seed.
    """
    call = Call("accept_sampled", shape, ctx)
    source = call.group(tree, "tree")
    logits = call.logits(target, "target", shape.width)
    out = out or _new_accepted(shape, target, log_prob)
    how = _sampling(call, temperature, seed, top_k, top_p, min_p, order)
    options = _accept_options(
        call, logit_bias, token_bitmask, stop_tokens, remaining, processed_log_prob
    )
    batch, to = call.batch(cache_len, request), call.group(out, "out", True)
    context = call.context()
    scratch = call.workspace(context, workspace)
    call.run(context, shape.c, batch, source, logits, how, to, scratch, options)
    return out


def _sampling(
    call: Call,
    temperature: Optional[Array],
    seed: Optional[Array],
    top_k: Optional[Array],
    top_p: Optional[Array],
    min_p: Optional[Array],
    order: str,
) -> Any:
    rows = (call.shape.request_rows,)
    return default(
        "sampling",
        temperature=call.by_request(temperature, "temperature"),
        top_k=call.ids(top_k, "top_k", rows),
        top_p=call.by_request(top_p, "top_p"),
        min_p=call.by_request(min_p, "min_p"),
        seed=call.ids(seed, "seed", rows),
        order=call.choice("FILTER_ORDER", order, "order"),
    )


class KvTensors:
    """The tensors of a KV cache, described once for compact_kv.

    ``layout`` names the axes of each: "hnd" is [pages, heads, rows, dim] (transformers: a page is a
    batch row), "nhd" is [pages, rows, heads, dim]. The last axis must be contiguous. On a GPU the
    description lies in device memory; ``update`` rewrites it there, for a cache whose tensors are
    new in every round.
    """

    def __init__(self, tensors: Sequence[Array], layout: str = "hnd") -> None:
        if layout not in ("hnd", "nhd"):
            raise ValueError(f'KvTensors: layout is {layout!r}, "hnd" or "nhd" is wanted')
        self.layout = layout
        self.count = len(tensors)
        self.rows = 0
        self._host = (structs["kv_tensor"] * self.count)()
        self._fill(tensors)
        self.memory: Array = self._host
        self._source: Any = None
        if self.device != "cpu":
            if not _arrays.is_torch(tensors[0]):
                raise TypeError("KvTensors: on a GPU, tensors must be torch's")
            import torch

            self._source = torch.frombuffer(self._host, dtype=torch.uint8)
            self.memory = self._source.to(tensors[0].device)

    def update(self, tensors: Sequence[Array]) -> None:
        """Describes other tensors of the same number; enqueues one small copy."""
        if len(tensors) != self.count:
            raise ValueError(f"KvTensors: {len(tensors)} tensors, {self.count} are wanted")
        self._fill(tensors)
        if self._source is not None:
            # Pageable memory is read before the call returns: it may be written again at once.
            self.memory.copy_(self._source, non_blocking=True)

    def _fill(self, tensors: Sequence[Array]) -> None:
        for i, tensor in enumerate(tensors):
            v = _arrays.view(tensor, f"KvTensors: tensors[{i}]")
            if len(v.shape) != 4:
                raise ValueError(f"KvTensors: tensors[{i}] has shape {v.shape}, 4 axes are wanted")
            if v.shape[3] > 1 and v.strides[3] != 1:
                raise ValueError(f"KvTensors: tensors[{i}] has a last axis that is not contiguous")
            size = v.itemsize or tensor.itemsize
            head, row = (1, 2) if self.layout == "hnd" else (2, 1)
            t = self._host[i]
            t.base, t.pages, t.heads = v.address, v.shape[0], v.shape[head]
            t.page_stride = v.strides[0] * size
            t.token_stride, t.head_stride = v.strides[row] * size, v.strides[head] * size
            t.row_bytes = v.shape[3] * size
            self.rows, self.device = v.shape[row], v.device

    @property
    def address(self) -> int:
        if self.device == "cpu":
            return ctypes.addressof(self._host)
        address: int = self.memory.data_ptr()
        return address


def _cache(call: Call, tensors: Optional[KvTensors], table: Optional[KvTable], rows: int) -> Any:
    cache = default("kv_cache")
    cache.table[0] = call.table(table, "table")
    if tensors is not None:
        if call.device is not None and tensors.device != call.device:
            raise call.error(f"tensors are on {tensors.device}, the others on {call.device}")
        cache.tensors, cache.num_tensors = tensors.address, tensors.count
        if table is None:
            cache.table[0].page_size = rows or tensors.rows
        call.keep.append(tensors)
    return cache


def compact_kv(
    shape: Shape,
    accepted: Accepted,
    tensors: Union[KvTensors, Sequence[Array], None],
    *,
    cache_len: Array,
    table: Optional[KvTable] = None,
    request: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> None:
    """Moves the KV rows of accepted nodes to the front of the tree's slots, in place, all tensors
    in one call. ``cache_len`` is as before ``advance``.

    ``tensors``: a KvTensors, or a sequence of [pages, heads, rows, dim]. Without a ``table``,
    request r has page r; with ``table.index_only`` its entries are permuted instead, and tensors
    is None.
    """
    call = Call("compact_kv", shape, ctx)
    path = call.group(accepted, "accepted", True)
    batch = call.batch(cache_len, request)
    if tensors is not None and not isinstance(tensors, KvTensors):
        tensors = KvTensors(tensors)
    call.run(call.context(), shape.c, batch, path, _cache(call, tensors, table, 0))


def compact_rows(
    shape: Shape,
    accepted: Accepted,
    rows: Array,
    *,
    out: Optional[Array] = None,
    request: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> Array:
    """Copies row path[r] of each request to row r, of ``rows`` [batch, width, n], contiguous and of
    any type; in place, or to ``out``."""
    call = Call("compact_rows", shape, ctx)
    path = call.group(accepted, "accepted")
    views = []
    for array, name in ((rows, "rows"), (rows if out is None else out, "out")):
        v = _arrays.view(array, f"compact_rows: {name}")
        if len(v.shape) != 3 or v.shape[:2] != (shape.batch, shape.width):
            wanted = (shape.batch, shape.width, "n")
            raise call.error(f"{name} has shape {v.shape}, {wanted} is wanted")
        v = call.view(array, name, (v.type,), v.shape, out=name == "out")
        size = (v.itemsize or array.itemsize) * v.shape[2]
        views.append(default("rows_view", data=v.address, row_bytes=size))
    call.run(call.context(), shape.c, call.batch(None, request), path, *views)
    return rows if out is None else out


def advance(
    shape: Shape,
    accepted: Accepted,
    cache_len: Array,
    *,
    request: Optional[Array] = None,
    ctx: Optional[Context] = None,
) -> Array:
    """cache_len[request] += num_accepted + 1, in place."""
    call = Call("advance", shape, ctx)
    path = call.group(accepted, "accepted")
    length = call.ids(cache_len, "cache_len", (shape.request_rows,), True)
    call.run(call.context(), shape.c, call.batch(None, request), path, length)
    return cache_len
