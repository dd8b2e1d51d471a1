"""Writes DIR/golden.json: the reference outputs (fp32, CPU). Usage: golden.py DIR"""

import json
import sys

import spec

MAX_NEW = 128
COUNTED = [0, 3, 6, 9, 12, 15, 24, 28]  # 6 GSM8K and 2 HumanEval prompts
TRACE_BUDGET = 32
TRACE_ROUNDS = 4


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def lines(values):
    return ",\n".join(compact(value) for value in values)


def count_rounds(engine, index, prompt, expected):
    rounds = {"id": prompt["id"], "prompt_index": index}
    for name, budget in (("chain", None), ("ddtree64", 64)):
        out, rounds[name], _, _ = spec.speculate(engine, prompt["ids"], MAX_NEW, budget)
        assert out == expected
    return rounds


def write(path, plain, rounds, trace_id, accepted, traces):
    with open(path, "w") as file:
        file.write('{"max_new": %d, "dtype": "float32",\n"ar": [\n' % MAX_NEW)
        file.write(lines(plain))
        file.write('\n],\n"rounds": [\n' + lines(rounds))
        file.write('\n],\n"trace": {"id": "%s", "prompt_index": 0, ' % trace_id)
        file.write('"budget": %d, "accepted": %s,\n' % (TRACE_BUDGET, json.dumps(accepted)))
        file.write('"rounds": [\n' + lines(traces) + "\n]}}\n")
    with open(path) as file:
        json.load(file)


def main(folder):
    engine = spec.Engine(folder)
    with open(folder + "/prompts.jsonl") as file:
        prompts = [json.loads(line) for line in file]
    plain, rounds = [], []
    for i, prompt in enumerate(prompts):
        ids, gap = spec.autoregress(engine, prompt["ids"], MAX_NEW)
        ended = ids[-1] == spec.EOS
        plain.append({"id": prompt["id"], "ids": ids, "ended": ended, "min_gap": round(gap, 6)})
        if i in COUNTED:
            rounds.append(count_rounds(engine, i, prompt, ids))
    out, accepted, _, traces = spec.speculate(
        engine, prompts[0]["ids"], MAX_NEW, TRACE_BUDGET, trace=TRACE_ROUNDS
    )
    assert out == plain[0]["ids"] and len(traces) == TRACE_ROUNDS
    write(folder + "/golden.json", plain, rounds, prompts[0]["id"], accepted, traces)


if __name__ == "__main__":
    main(sys.argv[1])
