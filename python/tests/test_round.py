# SPDX-License-Identifier: Apache-2.0
"""Whole rounds: the tokens are those of plain decoding."""

import ddtree
import numpy
import pytest

VOCAB, DEPTH, LENGTH, NEW = 64, 6, 96, 24
SHAPE = ddtree.Shape(vocab=VOCAB, depth=DEPTH, top_k=8, budget=20)


def target_logits(context):
    """A language model: noise that the last three tokens decide."""
    seed = [t + 1 for t in context[-3:]]
    return numpy.random.default_rng(seed).normal(0, 2, VOCAB).astype("float32")


def draft_logits(context):
    """A drafter that knows the model's greedy path and is not sure of it."""
    context, rows = list(context), []
    for _ in range(DEPTH):
        logits = target_logits(context)
        context.append(int(logits.argmax()))
        rows.append(logits + numpy.random.default_rng(len(rows)).normal(0, 1.5, VOCAB))
    return numpy.array(rows, "float32")


def plain(prompt):
    context = list(prompt)
    for _ in range(NEW):
        context.append(int(target_logits(context).argmax()))
    return context[len(prompt) :]


def make_round(place, shape=SHAPE):
    ctx = None
    if place.name == "torch-cuda":
        ctx = ddtree.Context(0, 0)
    memory = place.array(numpy.zeros(ddtree.Round.bytes(shape, ctx), "uint8"))
    return ddtree.Round(shape, memory)


@pytest.mark.parametrize("budget", [0, 1, 20])
def test_tree_decoding_gives_the_tokens_of_plain_decoding(place, budget):
    shape = ddtree.Shape(vocab=VOCAB, depth=DEPTH, top_k=8, budget=budget)
    decode = make_round(place, shape)
    prompt = [5, 6, 7]
    cache = numpy.full(LENGTH + shape.width, -1)  # a "KV cache" that remembers its tokens
    cache[: len(prompt)] = prompt
    kv = place.array(cache.reshape(1, 1, -1, 1), "int32")
    cache_len = place.array([len(prompt)], "int64")
    bonus = int(target_logits(prompt).argmax())
    decode.accepted.bonus[0] = bonus
    out, rounds = [bonus], 0
    visible = place.array(numpy.zeros((1, shape.width, LENGTH + shape.width), "uint8"))
    slot = place.array(numpy.zeros((1, shape.width), "int64"))
    while len(out) < NEW:
        length = int(place.host(cache_len)[0])
        committed = place.host(kv).ravel()[:length].tolist()
        decode.draft(
            place.array(draft_logits([*committed, out[-1]])[None]),
            mask=visible, region="full", slot=slot, cache_len=cache_len,
        )  # fmt: skip
        # The target: writes its rows into the cache, and sees what the mask shows.
        tokens, slots = place.host(decode.tree.token)[0], place.host(slot)[0]
        rows = place.host(kv).copy()
        for token, s in zip(tokens, slots):
            if s >= 0:
                rows[0, 0, s, 0] = token
        kv[...] = place.array(rows)
        seen = place.host(visible)[0].astype(bool)
        logits = [target_logits(rows.ravel()[row].tolist()) for row in seen]
        decode.accept(place.array(numpy.array([logits])), cache_len=cache_len)
        decode.commit([kv], cache_len=cache_len)
        n = int(place.host(decode.accepted.num_accepted)[0])
        out += place.host(decode.accepted.token)[0, : n + 1].tolist()
        rounds += 1
    assert out[:NEW] == plain(prompt)
    assert budget == 0 or rounds < NEW - 1


def test_the_arrays_of_a_round_are_its_memory(place):
    decode = make_round(place)
    root = place.array([9], "int32")
    logits = place.array(draft_logits([1, 2, 3])[None])
    tree = decode.draft(logits, root)
    alone = ddtree.build_tree(SHAPE, ddtree.expand(SHAPE, logits), root)
    for name in vars(alone):
        assert (place.host(getattr(tree, name)) == place.host(getattr(alone, name))).all(), name
    target = place.array(numpy.zeros((1, SHAPE.width)), "int32")
    decode.accept_tokens(target)
    expected = ddtree.accept_tokens(SHAPE, alone, target)
    assert (place.host(decode.accepted.token) == place.host(expected.token)).all()


def test_a_round_is_captured_in_a_graph(place):
    if place.name != "torch-cuda":
        pytest.skip("graphs are CUDA's")
    torch = place.torch
    decode = make_round(place)
    logits = place.array(draft_logits([1, 2, 3])[None])
    root = place.array([9], "int32")
    target = place.array(numpy.zeros((1, SHAPE.width)), "int32")
    cache_len = place.array([10], "int64")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        decode.draft(logits, root, cache_len=cache_len)
        decode.accept_tokens(target, cache_len=cache_len)
        decode.commit(None, cache_len=cache_len)
    for context in ([1, 2, 3], [4, 5, 6]):
        logits.copy_(place.array(draft_logits(context)[None]))
        before = int(cache_len)
        graph.replay()
        alone = ddtree.build_tree(SHAPE, ddtree.expand(SHAPE, logits), root)
        assert (decode.tree.token == alone.token).all()
        assert int(cache_len) == before + int(decode.accepted.num_accepted) + 1
