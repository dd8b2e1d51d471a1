"""Held-out evaluation in fp32 on the CPU: one JSON line per prompt, then a summary of such files.

evaluate.py DIR PROMPTS.jsonl [--max_new 192] [--dtype float32] [--budgets 8,16,...] [--part i/n]
evaluate.py --sum FILE...
"""

import argparse
import json

import torch

import spec


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("prompts", nargs="*")
    parser.add_argument("--max_new", type=int, default=192)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--budgets", default="8,16,32,64,128,256")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--sum", action="store_true")
    return parser.parse_args()


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def first_difference(a, b):
    """None where equal; -1 where one is the other's beginning."""
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), -1)


def evaluate_prompt(engine, prompt, max_new, budgets):
    plain, gap = spec.autoregress(engine, prompt["ids"], max_new)
    methods = {}
    for budget in budgets:
        out, accepted, method_gap, _ = spec.speculate(engine, prompt["ids"], max_new, budget)
        methods["chain" if budget is None else str(budget)] = {
            "same": out == plain,
            "first_diff": first_difference(out, plain),
            "acc": accepted,
            "gap": method_gap,
            "out": len(out),
        }
    return {
        "id": prompt["id"],
        "source": prompt["source"],
        "n": len(prompt["ids"]),
        "ar": plain,
        "gap": gap,
        "m": methods,
    }


def evaluate(arguments):
    engine = spec.Engine(arguments.dir, getattr(torch, arguments.dtype))
    part, parts = map(int, arguments.part.split("/"))
    prompts = read_lines(arguments.prompts[0])[part::parts][: arguments.limit or None]
    budgets = [None] + [int(budget) for budget in arguments.budgets.split(",") if budget]
    for prompt in prompts:
        print(json.dumps(evaluate_prompt(engine, prompt, arguments.max_new, budgets)), flush=True)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def summarise(paths):
    results = [result for path in paths for result in read_lines(path)]
    for source in sorted({result["source"] for result in results}):
        group = [result for result in results if result["source"] == source]
        tokens = sum(len(result["ar"]) for result in group)
        print(
            f"{source} prompts {len(group)}, AR tokens {tokens}, mean {tokens / len(group):.1f}, "
            f"min top1-top2 gap {min(result['gap'] for result in group):.3g}"
        )
        base = None
        for method in group[0]["m"]:
            base = summarise_method(method, [result["m"][method] for result in group], base)


def summarise_method(name, outcomes, base):
    """Prints one line. `base` is the mean that others are compared with: the first method's."""
    rounds = [count for outcome in outcomes for count in outcome["acc"]]
    accepted = mean(rounds)
    base = base or accepted
    emitted = sum(outcome["out"] - 1 for outcome in outcomes) / len(rounds)
    per_prompt = mean(mean(outcome["acc"]) for outcome in outcomes)
    same = sum(outcome["same"] for outcome in outcomes)
    print(
        f"  {name:<6} rounds {len(rounds):5d}  mean accepted {accepted:.3f} "
        f"(x{accepted / base:.2f} chain)  per-prompt mean {per_prompt:.3f}  "
        f"emitted/round {emitted:.3f}  same as AR {same}/{len(outcomes)}  "
        f"min gap {min(outcome['gap'] for outcome in outcomes):.3g}"
    )
    return base


if __name__ == "__main__":
    given = parse_arguments()
    if given.sum:
        summarise([given.dir] + given.prompts)
    else:
        evaluate(given)
