# SPDX-License-Identifier: Apache-2.0
"""Every function against the paper restated in oracle.py."""

import ddtree
import numpy
import oracle

SHAPE = ddtree.Shape(batch=2, vocab=300, depth=5, top_k=12, budget=40)


def draft_logits(rng, step=None):
    logits = rng.normal(0, 2.5, (SHAPE.batch, SHAPE.depth, SHAPE.vocab)).astype("float32")
    return logits if step is None else (numpy.round(logits / step) * step).astype("float32")


def a_tree(place, rng, budget=None):
    candidates = ddtree.expand(SHAPE, place.array(draft_logits(rng)))
    root = rng.integers(0, SHAPE.vocab, SHAPE.batch)
    limit = None if budget is None else place.array(budget, "int64")
    tree = ddtree.build_tree(SHAPE, candidates, place.array(root, "int64"), budget=limit)
    return tree, nodes_of(place, tree)


def nodes_of(place, tree):
    """By request, (token, parent) of each node."""
    token, parent, count = (place.host(a) for a in (tree.token, tree.parent, tree.num_nodes))
    return [list(zip(token[b, :n].tolist(), parent[b, :n].tolist())) for b, n in enumerate(count)]


def target_along(rng, nodes):
    """Tokens of the target, which agree with a child three times out of four."""
    target = rng.integers(0, SHAPE.vocab, (SHAPE.batch, SHAPE.width))
    for b, of_request in enumerate(nodes):
        for i in range(len(of_request)):
            children = [n[0] for n in of_request if n[1] == i]
            if children and rng.random() < 0.75:
                target[b, i] = rng.choice(children)
    return target


def test_expand_finds_the_most_probable_tokens(place, rng):
    logits = draft_logits(rng)
    got = ddtree.expand(SHAPE, place.array(logits))
    for b in range(SHAPE.batch):
        token, log_prob = oracle.candidates(logits[b], SHAPE.top_k)
        assert (place.host(got.token)[b] == token).all()
        numpy.testing.assert_allclose(place.host(got.log_prob)[b], log_prob, rtol=0, atol=2e-5)


def test_expand_reads_strided_rows_of_half_floats(place, rng):
    wide = rng.normal(0, 2.5, (SHAPE.batch, SHAPE.depth + 1, SHAPE.vocab + 20)).astype("float16")
    view = place.array(wide)[:, 1:, : SHAPE.vocab]
    got = ddtree.expand(SHAPE, view)
    for b in range(SHAPE.batch):
        logits = wide[b, 1:, : SHAPE.vocab].astype("float32")
        token, _ = oracle.candidates(logits, SHAPE.top_k)
        assert (place.host(got.token)[b] == token).all()


def test_expand_takes_a_temperature_by_request(place, rng):
    logits = draft_logits(rng)
    temperature = numpy.array([0.5, 2], "float32")
    got = ddtree.expand(SHAPE, place.array(logits), temperature=place.array(temperature))
    for b in range(SHAPE.batch):
        _, log_prob = oracle.candidates(logits[b] / temperature[b], SHAPE.top_k)
        numpy.testing.assert_allclose(place.host(got.log_prob)[b], log_prob, rtol=0, atol=5e-5)


def test_build_tree_is_the_papers_heap(place, rng):
    for step in (None, 0.5):  # the second one has ties
        candidates = ddtree.expand(SHAPE, place.array(draft_logits(rng, step)))
        root = rng.integers(0, SHAPE.vocab, SHAPE.batch)
        tree = ddtree.build_tree(SHAPE, candidates, place.array(root, "int32"))
        for b in range(SHAPE.batch):
            nodes = oracle.tree(
                place.host(candidates.token)[b], place.host(candidates.log_prob)[b], root[b], 40
            )
            assert place.host(tree.num_nodes)[b] == len(nodes)
            names = ("token", "parent", "depth", "rank")
            for column, name in enumerate(names):
                got = place.host(getattr(tree, name))[b, : len(nodes)]
                assert got.tolist() == [node[column] for node in nodes], name
            weight = numpy.array([node[4] for node in nodes], "float32")
            assert (place.host(tree.log_weight)[b, : len(nodes)] == weight).all()


def test_build_tree_keeps_to_a_budget_by_request(place, rng):
    tree, nodes = a_tree(place, rng, budget=[7, 0])
    assert [len(n) for n in nodes] == [8, 1]


def test_write_mask_shows_ancestors(place, rng):
    tree, nodes = a_tree(place, rng, budget=[40, 11])
    length = numpy.array([9, 4])
    columns = 64
    full = place.array(numpy.full((SHAPE.batch, 1, SHAPE.width, columns), 7, "uint8"))
    ddtree.write_mask(SHAPE, tree, full, region="full", cache_len=place.array(length, "int32"))
    additive = place.array(numpy.full((SHAPE.batch, SHAPE.width, SHAPE.width), 7, "float32"))
    ddtree.write_mask(SHAPE, tree, additive, masked_value=-1e30)
    for b in range(SHAPE.batch):
        seen = oracle.visible([(0, n[1]) for n in nodes[b]], SHAPE.width)
        assert ((place.host(additive)[b] == 0) == seen).all()
        assert set(numpy.unique(place.host(additive)[b])) == {numpy.float32(-1e30), 0}
        expected = numpy.zeros((SHAPE.width, columns), bool)
        expected[:, : length[b]] = True
        expected[:, length[b] : length[b] + SHAPE.width] = seen
        assert (place.host(full)[b, 0] == expected).all()
        bits = place.host(tree.ancestors)[b].view("uint8")
        unpacked = numpy.unpackbits(bits, axis=-1, bitorder="little")[:, : SHAPE.width]
        assert (unpacked == seen).all()


def test_write_verify_inputs_places_the_nodes(place, rng):
    tree, nodes = a_tree(place, rng, budget=[40, 3])
    arrays = [place.array(numpy.full((SHAPE.batch, SHAPE.width), 77, "int64")) for _ in range(3)]
    token, position, slot = arrays
    length = place.array([9, 4], "int64")
    ddtree.write_verify_inputs(
        SHAPE, tree, token=token, position=position, slot=slot, cache_len=length
    )
    depth = place.host(tree.depth)
    assert (place.host(token) == place.host(tree.token)).all()
    assert (place.host(position) == numpy.array([[9], [4]]) + depth).all()
    assert place.host(slot)[1].tolist() == [4, 5, 6, 7] + [-1] * (SHAPE.width - 4)


def test_accept_follows_the_targets_tokens(place, rng):
    tree, nodes = a_tree(place, rng)
    target = target_along(rng, nodes)
    logits = rng.normal(0, 1, (SHAPE.batch, SHAPE.width, SHAPE.vocab)).astype("float32")
    numpy.put_along_axis(logits, target[..., None], 9, -1)
    lengths = place.array([5, 6], "int64")
    seed = place.array([1, 2], "int64")
    cold = place.array([0, 0], "float32")
    results = [
        ddtree.accept_tokens(SHAPE, tree, place.array(target, "int64")),
        ddtree.accept_greedy(SHAPE, tree, place.array(logits)),
        ddtree.accept_sampled(
            SHAPE, tree, place.array(logits), temperature=cold, seed=seed, cache_len=lengths
        ),
    ]
    for got in results:
        for b in range(SHAPE.batch):
            path, bonus = oracle.walk(nodes[b], target[b])
            n = len(path) - 1
            assert place.host(got.num_accepted)[b] == n
            assert place.host(got.path)[b, : n + 1].tolist() == path
            assert place.host(got.bonus)[b] == bonus
            emitted = [nodes[b][i][0] for i in path[1:]] + [bonus]
            assert place.host(got.token)[b].tolist() == emitted + [-1] * (SHAPE.depth - n)


def test_accept_gives_the_log_probs_of_what_is_emitted(place, rng):
    tree, nodes = a_tree(place, rng)
    logits = rng.normal(0, 1, (SHAPE.batch, SHAPE.width, SHAPE.vocab)).astype("float32")
    got = ddtree.accept_greedy(SHAPE, tree, place.array(logits), log_prob=True)
    for b in range(SHAPE.batch):
        path, bonus = oracle.walk(nodes[b], logits[b].argmax(-1))
        row = logits[b, path[-1]].astype("float64")
        expected = row[bonus] - numpy.log(numpy.exp(row).sum())
        assert abs(place.host(got.log_prob)[b, len(path) - 1] - expected) < 1e-5


def test_accept_stops_where_it_is_told(place, rng):
    tree, nodes = a_tree(place, rng)
    target = numpy.zeros((SHAPE.batch, SHAPE.width), "int64")
    first = [of_request[1][0] for of_request in nodes]
    target[:, 0] = first
    stop = place.array([[first[0], -1], [-1, -1]], "int32")
    got = ddtree.accept_tokens(SHAPE, tree, place.array(target), stop_tokens=stop)
    assert place.host(got.num_accepted)[0] == 0
    assert place.host(got.bonus)[0] == first[0]
    assert place.host(got.flags)[0] & ddtree.constants["FLAG_STOPPED"]
    assert place.host(got.num_accepted)[1] >= 1


def test_sampled_tokens_do_not_depend_on_the_tree(place, rng):
    tree, _ = a_tree(place, rng)
    logits = rng.normal(0, 1, (SHAPE.batch, SHAPE.width, SHAPE.vocab)).astype("float32")
    how = {
        "temperature": place.array([0.8, 1.3], "float32"),
        "seed": place.array([11, 12], "int64"),
        "cache_len": place.array([5, 6], "int64"),
        "top_k": place.array([50, 0], "int32"),
        "top_p": place.array([1, 0.9], "float32"),
    }
    got = ddtree.accept_sampled(SHAPE, tree, place.array(logits), **how)
    plain = ddtree.Shape(batch=2, vocab=300, depth=5, top_k=12, budget=0)
    of_roots = ddtree.Tree.empty(plain, how["seed"])
    ddtree.build_tree(
        plain, ddtree.expand(plain, place.array(draft_logits(rng))), tree.token[:, 0].copy()
        if place.name == "numpy" else tree.token[:, 0].contiguous(), out=of_roots,
    )  # fmt: skip
    one = ddtree.accept_sampled(plain, of_roots, place.array(logits[:, :1]), **how)
    assert (place.host(one.bonus) == place.host(got.token)[:, 0]).all()


def test_compact_kv_moves_the_accepted_rows(place, rng):
    tree, nodes = a_tree(place, rng)
    target = target_along(rng, nodes)
    accepted = ddtree.accept_tokens(SHAPE, tree, place.array(target, "int64"))
    length = numpy.array([9, 4])
    before = [rng.normal(size=(SHAPE.batch, 2, 64, 8)).astype("float32") for _ in range(3)]
    for layout in ("hnd", "nhd"):
        turned = before if layout == "hnd" else [t.transpose(0, 2, 1, 3) for t in before]
        tensors = [place.array(t) for t in turned]
        described = ddtree.KvTensors(tensors, layout)
        cache_len = place.array(length, "int64")
        ddtree.compact_kv(SHAPE, accepted, described, cache_len=cache_len)
        for b in range(SHAPE.batch):
            path, _ = oracle.walk(nodes[b], target[b])
            for was, tensor in zip(before, tensors):
                expected = was[b].copy()
                for r, i in enumerate(path):
                    expected[:, length[b] + r] = was[b][:, length[b] + i]
                got = place.host(tensor)[b]
                assert (got if layout == "hnd" else got.transpose(1, 0, 2) == expected).all()
        ddtree.advance(SHAPE, accepted, cache_len)
        committed = place.host(accepted.num_accepted) + 1
        assert (place.host(cache_len) == length + committed).all()


def test_compact_kv_permutes_a_slot_list(place, rng):
    tree, nodes = a_tree(place, rng)
    target = target_along(rng, nodes)
    accepted = ddtree.accept_tokens(SHAPE, tree, place.array(target, "int64"))
    slots = rng.permutation(SHAPE.batch * 64).reshape(SHAPE.batch, 64).astype("int32")
    entries = place.array(slots)
    length = place.array([9, 4], "int64")
    table = ddtree.KvTable(entries, index_only=True)
    ddtree.compact_kv(SHAPE, accepted, None, cache_len=length, table=table)
    for b, s in enumerate((9, 4)):
        path, _ = oracle.walk(nodes[b], target[b])
        got = place.host(entries)[b]
        assert (got[s : s + len(path)] == slots[b][[s + i for i in path]]).all()
        assert sorted(got) == sorted(slots[b])


def test_compact_rows_brings_hidden_states_to_the_front(place, rng):
    tree, nodes = a_tree(place, rng)
    target = target_along(rng, nodes)
    accepted = ddtree.accept_tokens(SHAPE, tree, place.array(target, "int64"))
    before = rng.normal(size=(SHAPE.batch, SHAPE.width, 10)).astype("float16")
    rows = ddtree.compact_rows(SHAPE, accepted, place.array(before))
    for b in range(SHAPE.batch):
        path, _ = oracle.walk(nodes[b], target[b])
        assert (place.host(rows)[b, : len(path)] == before[b, path]).all()


def test_link_tree_completes_a_tree_made_elsewhere(place, rng):
    tree, _ = a_tree(place, rng)
    linked = ddtree.link_tree(
        SHAPE, tree.parent, tree.token, tree.num_nodes, log_weight=tree.log_weight
    )
    for name in ("token", "parent", "depth", "first_child", "next_sibling", "ancestors"):
        assert (place.host(getattr(linked, name)) == place.host(getattr(tree, name))).all(), name


def test_inactive_rows_are_left_alone(place, rng):
    request = place.array([1, -1], "int32")
    candidates = ddtree.expand(SHAPE, place.array(draft_logits(rng)), request=request)
    root = place.array([3, 4], "int32")
    tree = ddtree.build_tree(SHAPE, candidates, root, request=request)
    target = place.array(numpy.zeros((SHAPE.batch, SHAPE.width)), "int32")
    accepted = ddtree.accept_tokens(SHAPE, tree, target, request=request)
    assert place.host(tree.num_nodes).tolist() == [SHAPE.width, 1]
    assert place.host(accepted.num_accepted)[1] == -1
