"""Checks on random weights: training form = inference form, no leak, tree invariants, lossless."""

import json
import tempfile

import torch

import spec
from lm import DRAFTER
from lm import TARGET
from lm import Drafter
from lm import Target
from weights import round_bf16_
from weights import save_bf16


def random_models(folder):
    """Weights large enough that rows differ, saved as an engine expects them."""
    target, drafter = Target(), Drafter()
    with torch.no_grad():
        target.embed.weight.mul_(10)
        drafter.mask_embed.mul_(20)
    round_bf16_(target)
    round_bf16_(drafter)
    save_bf16(target, folder + "/target.safetensors")
    save_bf16(drafter, folder + "/drafter.safetensors")
    drafter_config = dict(DRAFTER, hidden=TARGET["hidden"], eps=TARGET["eps"])
    with open(folder + "/config.json", "w") as file:
        json.dump({"target": TARGET, "drafter": drafter_config}, file)
    return target, drafter


def largest(difference):
    return difference.abs().max().item()


def check_target(engine, target, ids, prefix):
    """Prefill and single steps against the training form. Returns features of both."""
    hidden, features = target(ids[None], tuple(DRAFTER["target_layer_ids"]))
    expected = target.head(hidden)[0]
    engine.reset()
    future = torch.ones(prefix, prefix, dtype=torch.bool).triu(1)
    logits, prefix_features = engine.target(ids[:prefix], torch.arange(prefix), future)
    steps = [
        engine.target(ids[i : i + 1], torch.tensor([i]), None)[0] for i in range(prefix, len(ids))
    ]
    print(
        "target",
        largest(logits - expected[:prefix]),
        largest(torch.cat(steps) - expected[prefix:]),
        largest(prefix_features - features[0, :prefix]),
    )
    return features, prefix_features


def check_drafter(engine, target, drafter, ids, anchor, features, prefix_features):
    """A draft against the training form, which must not see features from the anchor on."""
    anchors = [anchor, 9]
    bonus = target.embed(ids[None, anchors])
    expected = target.head(drafter(features, bonus, torch.tensor([anchors])))[0]
    engine.add_context(prefix_features, torch.arange(anchor))
    logits = engine.draft(int(ids[anchor]), anchor)
    print("drafter", largest(logits - expected[0]), "scale", logits.std().item())

    spoiled = features.clone()
    spoiled[:, anchor:] = 99.0
    leaked = target.head(drafter(spoiled, bonus, torch.tensor([anchors])))[0, 0]
    print("no leak", largest(leaked - expected[0]))
    return logits


def check_tree(logits):
    for budget in (8, 32):
        nodes = spec.build_tree(logits * 3, budget)
        assert len(nodes) == budget + 1
        for i, (_, parent, depth) in enumerate(nodes[1:], start=1):
            assert parent < i and depth == nodes[parent][2] + 1


def check_lossless(engine, prompt):
    plain, gap = spec.autoregress(engine, prompt, 24)
    for budget in (None, 8, 64):
        out, accepted, spec_gap, _ = spec.speculate(engine, prompt, 24, budget)
        print("budget", budget, out == plain, accepted, gap, spec_gap)


def main():
    torch.manual_seed(3)
    folder = tempfile.mkdtemp()
    target, drafter = random_models(folder)
    engine = spec.Engine(folder)
    ids = torch.randint(4, 2048, (40,))
    anchor = 25
    with torch.no_grad():
        features, prefix_features = check_target(engine, target, ids, anchor)
        logits = check_drafter(engine, target, drafter, ids, anchor, features, prefix_features)
        check_tree(logits)
        check_lossless(engine, ids[:20].tolist())


if __name__ == "__main__":
    main()
