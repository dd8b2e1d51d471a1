"""Picks the prompts by a fixed rule, none dropped afterwards. Usage: pick_prompts.py POOL OUT"""

import json
import sys

GSM8K = ["gsm8k-test-%d" % (1019 + 12 * i) for i in range(24)]
HUMANEVAL = ["HumanEval/%d" % (20 * i) for i in range(8)]


def main(pool_path, out_path):
    with open(pool_path) as file:
        pool = {prompt["id"]: prompt for prompt in map(json.loads, file)}
    with open(out_path, "w") as file:
        for name in GSM8K + HUMANEVAL:
            file.write(json.dumps(pool[name]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
