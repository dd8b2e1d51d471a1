# SPDX-License-Identifier: Apache-2.0
"""DDTree decoding of a Hugging Face model, transformers untouched.

    python decode.py                     # plain, chain and tree give the same tokens
    python decode.py --report            # what the library's steps take, beside steps on the host

Needs ddtree, torch and transformers. What transformers offers is enough: it takes a 4-D mask and
positions, and the tensors of its DynamicCache can be compacted where they lie.
"""

import argparse
import json
import pathlib
import statistics
import time

import ddtree
import torch
import transformers
from host_tree import HostSteps
from tiny_lm import Drafter, Features, load_target

MODEL = pathlib.Path(__file__).resolve().parents[1] / "tiny_lm" / "model"
PAD, EOS = 0, 2


class LibrarySteps:
    """What the library does in a round of one request. On a GPU both halves are captured in graphs
    once: their shapes never change, and what does lies in device memory."""

    def __init__(self, shape, dtype, device, capacity):
        self.shape = shape
        self.ctx = ddtree.Context(device.index, 0) if device.type == "cuda" else None
        bytes_ = ddtree.Round.bytes(shape, self.ctx)
        self.round = ddtree.Round(shape, torch.empty(bytes_, dtype=torch.uint8, device=device),
                                  padding="in_sequence")  # fmt: skip
        self.cache_len = torch.zeros(1, dtype=torch.int64, device=device)
        self.ids = torch.zeros(1, shape.width, dtype=torch.int64, device=device)
        self.positions = torch.zeros_like(self.ids)
        self.mask = torch.zeros(1, 1, shape.width, capacity, dtype=dtype, device=device)
        self.logits = torch.zeros(1, shape.width, shape.vocab, dtype=dtype, device=device)
        self.draft_logits = torch.zeros(shape.depth, shape.vocab, dtype=dtype, device=device)
        self.tensors = self.features = self.draft_graph = self.commit_graph = None
        self.events = None  # a list: device time is taken

    def begin(self, length, bonus):
        self.length = length
        self.cache_len.fill_(length)
        self.round.accepted.bonus.fill_(bonus)

    def _draft(self):
        self.round.draft(
            self.draft_logits,
            token=self.ids,
            position=self.positions,
            mask=self.mask,
            region="full",
            masked_value=torch.finfo(self.mask.dtype).min,
            cache_len=self.cache_len,
        )

    def draft(self, logits):
        if logits.data_ptr() != self.draft_logits.data_ptr():
            self.draft_logits.copy_(logits)
        self.draft_graph = run(self._draft, self.draft_graph, self.events)
        return self.ids, self.positions, self.mask[..., : self.length + self.shape.width]

    def _commit(self):
        self.round.accept(self.logits)
        self.round.commit(self.tensors, cache_len=self.cache_len, rows=self.mask.shape[-1])
        ddtree.compact_rows(self.shape, self.round.accepted, self.features)

    def commit(self, logits, cache, features):
        tensors = [t for layer in cache.layers for t in (layer.keys, layer.values)]
        if self.tensors is None:
            self.tensors = ddtree.KvTensors(tensors)
            self.features = torch.zeros_like(features)
        self.tensors.update(tensors)  # a DynamicCache has new ones in every round
        self.logits.copy_(logits)
        self.features.copy_(features)
        self.commit_graph = run(self._commit, self.commit_graph, self.events)
        # The one wait of a round: how many rows a DynamicCache is cropped to.
        tokens = self.round.accepted.token[0].tolist()
        n = tokens.index(-1) if -1 in tokens else len(tokens)
        self.length += n
        drop_last(cache, self.shape.width - n)
        return tokens[:n], self.features[0, :n]


def drop_last(cache, rows):
    if rows:
        cache.crop(-rows)  # by number: newer transformers takes no length


def run(steps, graph, events):
    """Steps as they are on the CPU; on a GPU, captured once (which runs nothing) and replayed."""
    if not torch.cuda.is_available():
        steps()
        return None
    if graph is None:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            steps()
    if events is None:
        graph.replay()
        return graph
    pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda._sleep(400_000)  # so that all is enqueued before the first of it runs
    pair[0].record()
    graph.replay()
    pair[1].record()
    events.append(pair)
    return graph


def cut(tokens):
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens


class Engine:
    def __init__(self, device, folder=MODEL):
        self.device = torch.device(device, 0) if device == "cuda" else torch.device(device)
        self.model = load_target(folder, self.device)
        self.drafter = Drafter(folder, self.model.model.embed_tokens.weight)
        self.hidden = Features(self.model, self.drafter.layers)
        self.vocab = self.model.config.vocab_size

    def prefill(self, prompt):
        cache = transformers.DynamicCache()
        ids = torch.tensor([prompt], device=self.device)
        logits = self.model(ids, past_key_values=cache, use_cache=True).logits
        return cache, int(logits[0, -1].argmax())

    @torch.inference_mode()
    def plain(self, prompts, new):
        """What transformers itself decodes, all prompts in one batch."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[PAD] * (longest - len(p)) + p for p in prompts], device=self.device)
        out = self.model.generate(ids, attention_mask=(ids != PAD).long(), max_new_tokens=new,
                                  do_sample=False, eos_token_id=EOS, pad_token_id=PAD)  # fmt: skip
        return [cut(row[longest:].tolist()) for row in out]

    @torch.inference_mode()
    def speculate(self, prompt, new, steps, timing=None):
        """Tokens, and how many each round committed. ``timing`` gets the seconds of a round's
        steps."""
        cache, bonus = self.prefill(prompt)
        self.drafter.reset()
        self.drafter.add_context(self.hidden.rows()[0])
        draft_logits = getattr(steps, "draft_logits", None)
        if draft_logits is None:
            draft_logits = torch.empty(self.drafter.depth, self.vocab, device=self.device)
        steps.begin(len(prompt), bonus)
        out, rounds = [bonus], []
        while len(out) < new and EOS not in out:
            self.drafter.draft(torch.tensor([out[-1]], device=self.device), draft_logits)
            begin = self.now(timing)
            ids, positions, mask = steps.draft(draft_logits)
            drafted = self.now(timing)
            logits = self.model(ids, attention_mask=mask, position_ids=positions,
                                past_key_values=cache, use_cache=True).logits  # fmt: skip
            hidden = self.hidden.rows()
            verified = self.now(timing)
            tokens, features = steps.commit(logits, cache, hidden)
            if timing is not None:
                timing.append((drafted - begin, self.now(timing) - verified))
            self.drafter.add_context(features)
            out += tokens
            rounds.append(len(tokens))
        return cut(out[:new]), rounds

    def now(self, timing):
        """Only where it is timed: the device's work is waited for."""
        if timing is not None and self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def steps(self, budget, top_k):
        shape = ddtree.Shape(vocab=self.vocab, depth=self.drafter.depth, top_k=top_k, budget=budget)
        return LibrarySteps(shape, torch.float32, self.device, capacity=1024 + shape.width)


def compare(engine, prompts, new):
    """Plain, chain and tree, token for token; also with the outputs that came with the model."""
    golden = json.loads((MODEL / "golden.json").read_text())
    known = {entry["id"]: entry["ids"] for entry in golden["ar"]}
    methods = {"chain": engine.steps(15, 1), "tree of 64": engine.steps(64, 64)}
    committed = {name: [] for name in methods}
    wrong = 0
    every_plain = engine.plain([prompt["ids"] for prompt in prompts], new)
    for done, (prompt, plain) in enumerate(zip(prompts, every_plain), 1):
        results = {"golden.json": known[prompt["id"]][:new]}
        for name, steps in methods.items():
            results[name], rounds = engine.speculate(prompt["ids"], new, steps)
            committed[name] += rounds
        for name, tokens in results.items():
            if tokens != plain:
                wrong += 1
                print(f"{prompt['id']}: {name} differs from plain decoding")
        print(f"{done} of {len(prompts)}", end="\r", flush=True)
    print(f"{len(prompts)} prompts, {new} tokens: {wrong} differences")
    for name, rounds in committed.items():
        print(f"{name}: {statistics.mean(rounds):.2f} tokens a round")
    return wrong


def report(engine, prompts, new, budget):
    """Medians over all rounds, both ways on the same prompts; the first prompt warms up.

    Steps on the host are what the GPU waits for, so their time is that of the clock, with both
    copies. The library's steps are work of the GPU: their time is the device's; what else the clock
    sees (launches, the reading of the tokens, crop) is given beside it.
    """
    top_k = 64
    ways = {
        "library": engine.steps(budget, top_k),
        "host": HostSteps(engine.drafter.depth, top_k, budget, engine.vocab, torch.float32,
                          engine.device),
    }  # fmt: skip
    outputs, total = {}, {}
    print(f"us a round (median), budget {budget}, {engine.device}")
    for name, steps in ways.items():
        engine.speculate(prompts[0]["ids"], new, steps)
        timing, outputs[name] = [], []
        begin = time.perf_counter()
        for prompt in prompts:
            outputs[name].append(engine.speculate(prompt["ids"], new, steps, timing)[0])
        whole = (time.perf_counter() - begin) / len(timing)
        before, after = (statistics.median(t[i] for t in timing) * 1e6 for i in (0, 1))
        total[name] = before + after
        print(f"{name:8} tree, mask, inputs {before:8.1f}   walk, compaction {after:8.1f}   "
              f"both {before + after:8.1f}   whole round {whole * 1e6:9.1f}")  # fmt: skip
    print(f"host / library, by the clock: {total['host'] / total['library']:.1f}")
    if engine.device.type == "cuda":
        steps = ways["library"]
        steps.events = []
        for prompt in prompts:
            engine.speculate(prompt["ids"], new, steps)
        torch.cuda.synchronize()
        times = [pair[0].elapsed_time(pair[1]) * 1e3 for pair in steps.events]
        draft, commit = (statistics.median(times[i::2]) for i in (0, 1))
        print(
            f"library, device time: tree, mask, inputs {draft:.1f}   walk, compaction {commit:.1f}"
        )
        print(f"host / library, device time: {total['host'] / (draft + commit):.1f}")
    if outputs["host"] != outputs["library"]:
        print("the two differ in their tokens")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--prompts", default=":", help="which, as a slice: 0:8 are the first eight")
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--budget", type=int, default=64, help="of --report")
    options = parser.parse_args()
    lines = (MODEL / "prompts.jsonl").read_text().splitlines()
    first, _, last = options.prompts.partition(":")
    prompts = [json.loads(line) for line in lines[int(first or 0) : int(last or len(lines))]]
    engine = Engine(options.device)
    if options.report:
        return report(engine, prompts, options.new, options.budget)
    return 1 if compare(engine, prompts, options.new) else 0


if __name__ == "__main__":
    raise SystemExit(main())
