# SPDX-License-Identifier: Apache-2.0
"""A whole round: its arrays in one piece of memory, and three steps over them."""

import ctypes
import math
from typing import Optional, Sequence, Union

from . import _operations
from ._arrays import Array
from ._call import Call
from ._library import default, library, structs
from ._types import Accepted, Candidates, Context, KvTable, Shape, Tree


class Round:
    """The arrays of one round over ``memory``, uint8 of at least ``Round.bytes``, and its steps.

    ``candidates``, ``tree`` and ``accepted`` are views of the memory, for torch and NumPy (and what
    is like them). Before the first round write the tokens sampled after prefill into
    ``accepted.bonus``, or give ``draft`` a root. The steps run on ``ctx``; on a GPU without one, on
    the stream that is torch's current one at each call, so that they can be captured in a graph.
    """

    def __init__(
        self,
        shape: Shape,
        memory: Array,
        *,
        log_prob: bool = False,
        seed_depth: int = 0,
        padding: str = "minus_one",
        ctx: Optional[Context] = None,
    ) -> None:
        call = Call("decoding_round_create", shape, ctx)
        self.shape, self.ctx, self.memory = shape, ctx, memory
        v = call.view(memory, "memory", ("u8",), out=True)
        if len(v.shape) != 1 or not v.is_dense:
            raise call.error("memory is not one contiguous row of bytes")
        options = default("round_options", log_prob=log_prob)
        options.build.seed_depth = seed_depth
        options.verify.padding = call.choice("PADDING_SLOT", padding, "padding")
        where = structs["workspace"](v.address, math.prod(v.shape))
        self._device = v.device
        self._round = structs["decoding_round"]()
        call.run(call.context(), shape.c, where, self._round, options)
        self.candidates = Candidates.over(shape, self._round.candidates_, memory)
        self.tree = Tree.over(shape, self._round.tree, memory)
        self.accepted = Accepted.over(shape, self._round.accepted_, memory)

    @staticmethod
    def bytes(shape: Shape, ctx: Optional[Context] = None) -> int:
        """Bytes of memory for a shape, where ``ctx`` runs (None: on the CPU)."""
        context = (ctx or Context()).c
        size: int = library.ddtree_decoding_round_bytes(
            ctypes.byref(context), ctypes.byref(shape.c)
        )
        return size

    def _begin(self, name: str) -> Call:
        call = Call(f"decoding_round_{name}", self.shape, self.ctx)
        call.device = self._device
        self._round.ctx = call.context()
        return call

    def draft(
        self,
        logits: Array,
        root: Optional[Array] = None,
        *,
        token: Optional[Array] = None,
        position: Optional[Array] = None,
        slot: Optional[Array] = None,
        mask: Optional[Array] = None,
        region: str = "tree",
        masked_value: float = -math.inf,
        window: int = 0,
        cache_len: Optional[Array] = None,
        request: Optional[Array] = None,
    ) -> Tree:
        """expand and build_tree; write_mask where ``mask`` is given, write_verify_inputs where one
        of its arrays is. ``root``: None = the bonus of the round before."""
        call = self._begin("draft")
        rows = (self.shape.batch, self.shape.width)
        inputs = structs["verify_inputs"](
            call.ids(token, "token", rows, True),
            call.ids(position, "position", rows, True),
            call.ids(slot, "slot", rows, True),
        )
        first = self.accepted.bonus if root is None else root
        to = default("mask_view")
        if mask is not None:
            to = call.mask(mask, region, masked_value, window)
        source = call.logits(logits, "logits", self.shape.depth)
        batch = call.batch(cache_len, request)
        call.run(self._round, batch, source, call.ids(first, "root", rows[:1]), inputs, to)
        return self.tree

    def accept(
        self,
        target: Array,
        *,
        temperature: Optional[Array] = None,
        seed: Optional[Array] = None,
        top_k: Optional[Array] = None,
        top_p: Optional[Array] = None,
        min_p: Optional[Array] = None,
        order: str = "k_p_min",
        cache_len: Optional[Array] = None,
        request: Optional[Array] = None,
    ) -> Accepted:
        """accept_greedy, or accept_sampled where ``temperature`` is given."""
        call = self._begin("accept")
        logits = call.logits(target, "target", self.shape.width)
        how = _operations._sampling(call, temperature, seed, top_k, top_p, min_p, order)
        call.run(self._round, call.batch(cache_len, request), logits, how, None)
        return self.accepted

    def accept_tokens(
        self,
        target_token: Array,
        *,
        cache_len: Optional[Array] = None,
        request: Optional[Array] = None,
    ) -> Accepted:
        """The walk along tokens that were sampled already, [batch, width]."""
        call = self._begin("accept_tokens")
        target = call.ids(target_token, "target_token", (self.shape.batch, self.shape.width))
        call.run(self._round, call.batch(cache_len, request), target, None)
        return self.accepted

    def commit(
        self,
        tensors: Union[_operations.KvTensors, Sequence[Array], None] = None,
        *,
        cache_len: Array,
        table: Optional[KvTable] = None,
        rows: int = 0,
        request: Optional[Array] = None,
    ) -> None:
        """compact_kv, then advance of ``cache_len``, int32 or int64 [requests], in place.

        ``rows``: of a request in a cache without a table, where that is more than the tensors say.
        """
        call = self._begin("commit")
        batch = call.batch(cache_len, request)
        length = call.ids(cache_len, "cache_len", (self.shape.request_rows,), True)
        if tensors is not None and not isinstance(tensors, _operations.KvTensors):
            tensors = _operations.KvTensors(tensors)
        cache = _operations._cache(call, tensors, table, rows)
        call.run(self._round, batch, cache, length, None)
