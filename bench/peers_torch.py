#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operations as one writes them in torch, timed as ddtree_bench times them.

    peers_torch.py OUT.json

Rows are named as those of ddtree_bench, variant `torch`; report.py merge puts them beside them.
Every sequence runs in a CUDA graph. What torch leaves out is said at each.
"""
import json
import math
import statistics
import sys

try:
    import torch
except ImportError:
    torch = None

VOCAB = 151936
COLD_BYTES, SMALL_BYTES = 300e6, 1e6
LEAST_LAUNCHES, MOST_LAUNCHES, REPLAY_US = 20, 160, 400
WARM_UPS, LEAST_REPLAYS, MOST_REPLAYS, PATIENCE_US = 3, 5, 30, 0.5e6


class Graph:
    def __init__(self, call, launches):
        self.launches = launches
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(launches):
                call(i)

    def replay(self):
        """Microseconds per launch."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / self.launches


def time_launches(call, copies):
    """`call` takes the number of the copy."""
    warm = torch.cuda.Stream()  # what torch allocates and looks up on first use stays out of graphs
    with torch.cuda.stream(warm):
        call(0)
    torch.cuda.synchronize()
    trial = Graph(lambda i: call(i % copies), LEAST_LAUNCHES)
    trial.replay()
    launches = min(MOST_LAUNCHES, max(LEAST_LAUNCHES, REPLAY_US / trial.replay()))
    launches = math.ceil(int(launches) / copies) * copies
    del trial
    graph = Graph(lambda i: call(i % copies), launches)
    for _ in range(WARM_UPS):
        graph.replay()
    us = []
    while len(us) < LEAST_REPLAYS or (len(us) < MOST_REPLAYS
                                      and sum(us) * launches < PATIENCE_US):
        us.append(graph.replay())
    return statistics.median(us), launches, len(us)


def series(name, copy_bytes, make):
    """`make` takes how many copies to make, and returns the call."""
    copies = math.ceil(COLD_BYTES / copy_bytes)
    regimes = [("cold", copies)]
    if SMALL_BYTES <= copy_bytes < torch.cuda.get_device_properties(0).L2_cache_size / 2:
        regimes.append(("hot", 1))
    for regime, count in regimes:
        us, launches, replays = time_launches(make(count), count)
        torch.cuda.empty_cache()
        print(f"{name}/{regime}: {us:.2f} us", file=sys.stderr)
        yield {"name": f"{name}/{regime}", "run_name": f"{name}/{regime}",
               "run_type": "iteration", "iterations": 1, "real_time": us, "cpu_time": us,
               "time_unit": "us", "us": us, "launches": launches, "replays": replays}


def normal(rows, vocab=VOCAB, dtype=None):
    logits = torch.empty(rows, vocab, dtype=dtype or torch.bfloat16, device="cuda")
    return logits.normal_(0, 2.5)


def expand(rows, k, vocab=VOCAB, dtype="bf16"):
    """Equal logits come in no defined order."""
    kind = torch.float32 if dtype == "f32" else torch.bfloat16

    def make(copies):
        drafts = [normal(rows, vocab, kind) for _ in range(copies)]

        def call(copy):
            logits = drafts[copy].float()
            best, ids = torch.topk(logits, k, dim=-1)
            return ids, best - torch.logsumexp(logits, dim=-1, keepdim=True)
        return call

    return series(f"expand/torch/dtype:{dtype}/rows:{rows}/vocab:{vocab}/k:{k}",
                  rows * vocab * kind.itemsize, make)


def accept_greedy(batch, budget):
    """The argmax of every row; the walk would follow on the host."""
    rows = batch * (budget + 1)

    def make(copies):
        targets = [normal(rows) for _ in range(copies)]
        return lambda copy: targets[copy].argmax(dim=-1)

    return series(f"accept_greedy/torch/batch:{batch}/budget:{budget}", rows * VOCAB * 2, make)


def accept_sampled(batch, budget, k=50, p=0.9):
    """A token for every row; the walk would follow on the host."""
    rows = batch * (budget + 1)

    def make(copies):
        targets = [normal(rows) for _ in range(copies)]

        def call(copy):
            best, ids = torch.topk(targets[copy].float(), k, dim=-1)
            weight = torch.softmax(best, dim=-1)
            weight = weight.masked_fill(weight.cumsum(dim=-1) - weight >= p, 0.0)
            race = weight / torch.empty_like(weight).exponential_(1)  # the first one to arrive wins
            return ids.gather(-1, race.argmax(dim=-1, keepdim=True))
        return call

    return series(f"accept_sampled/torch/batch:{batch}/budget:{budget}/k:{k}/p:{p}",
                  rows * VOCAB * 2, make)


def compact_kv(batch, rows, tensors=72, heads=8, dim=128):
    """An index_select and an index_copy_ for each tensor, the indices ready made."""
    slots, length = 112, 40

    def make(copies):
        requests = batch * copies
        cache = [torch.zeros(requests * slots, heads, dim, dtype=torch.bfloat16, device="cuda")
                 for _ in range(tensors)]
        base = torch.arange(requests, device="cuda").view(copies, batch, 1) * slots + length
        step = torch.arange(1, rows, device="cuda")
        source, target = ((base + n * step).view(copies, -1) for n in (4, 1))

        def call(copy):
            for tensor in cache:
                tensor.index_copy_(0, target[copy], tensor.index_select(0, source[copy]))
        return call

    return series(f"compact_kv/torch/layout:nhd/tensors:{tensors}/batch:{batch}/rows:{rows}",
                  2 * batch * (rows - 1) * tensors * heads * dim * 2, make)


def all_series():
    for rows in (15, 65, 240, 960, 3840):
        yield from expand(rows, 64)
    yield from expand(240, 64, 262144, "f32")
    for rows in (15, 240, 960):
        yield from expand(rows, 1024)
    for batch, budget in ((1, 64), (64, 64), (1, 1024)):
        yield from accept_greedy(batch, budget)
    for batch in (1, 64):
        yield from accept_sampled(batch, 64)
    for batch, rows in ((1, 8), (64, 8), (256, 16)):
        yield from compact_kv(batch, rows)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if torch is None or not torch.cuda.is_available():
        print("no torch rows: " + ("no torch" if torch is None else "torch finds no CUDA device"))
        return
    document = {"context": {"device": torch.cuda.get_device_name(0), "torch": torch.__version__,
                            "cuda_runtime": torch.version.cuda},
                "benchmarks": list(all_series())}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)


if __name__ == "__main__":
    main()
