"""Trains the target, rounds it to bf16, lets it write texts and trains the drafter on them.

Each stage has a wall-clock budget.
Example: train.py --data data --out OUT --target_s 120 --rollout_s 60 --drafter_s 200
Resume:  train.py --data data --out OUT --target IN/target.safetensors
             --drafter_init IN/drafter_fp32.pt --seed 2 --drafter_s 400
"""

import argparse
import contextlib
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import bpe
from lm import DRAFTER
from lm import TARGET
from lm import Drafter
from lm import Target
from muon import Optimiser
from rollout import PromptMix
from rollout import Roller
from rollout import roll_out
from weights import load_bf16
from weights import round_bf16_
from weights import save_bf16


def parse_arguments():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--data", default="data")
    add("--out", default="out")
    add("--target", help="a trained target: skips its training")
    add("--drafter_init", help="fp32 state of a drafter to go on with")
    add("--target_s", type=float, default=120)
    add("--target_tokens", type=float, default=110e6)
    add("--rollout_s", type=float, default=60)
    add("--drafter_s", type=float, default=200)
    add(
        "--rows", type=int, default=64, help="rows of 512 GSM8K tokens by step; half of 1024 Python"
    )
    add("--batch", type=int, default=128)
    add("--anchors", type=int, default=32)
    add("--rb", type=int, default=4096, help="rollout batch")
    add("--T", type=int, default=448, help="rollout length")
    add("--drop", type=float, default=0.1)
    add("--lr_m", type=float, default=0.02, help="Muon's rate for the target; dlr_m: drafter")
    add("--lr_a", type=float, default=3e-3, help="AdamW's rate for the target; dlr_a: drafter")
    add("--dlr_m", type=float, default=0.02)
    add("--dlr_a", type=float, default=3e-3)
    add("--wd", type=float, default=0.1)
    add("--seed", type=int, default=1)
    add("--compile", type=int, default=1)
    add("--toy", type=int, default=0, help="small dimensions, to try the script")
    add("--py_frac", type=float, default=0.3)
    return parser.parse_args()


class Job:
    """Arguments, device and log of a run."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.on_gpu = self.device.type == "cuda"
        self.started = time.time()
        os.makedirs(arguments.out, exist_ok=True)
        self.log_file = open(arguments.out + "/train.log", "a")

    def log(self, *values):
        line = "[%6.1f] " % (time.time() - self.started) + " ".join(str(v) for v in values)
        print(line, flush=True)
        self.log_file.write(line + "\n")
        self.log_file.flush()

    def data(self, name):
        return self.arguments.data + "/" + name

    def out(self, name):
        return self.arguments.out + "/" + name

    def arange(self, *bounds):
        return torch.arange(*bounds, device=self.device)

    def autocast(self):
        if self.on_gpu:
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def try_compile(self, function, arguments, gradient=True):
        """The function compiled and warmed up where that works, else the function itself."""
        if not (self.on_gpu and self.arguments.compile):
            return function
        try:
            start = time.time()
            compiled = torch.compile(function, dynamic=False)
            if gradient:
                with self.autocast():
                    loss = compiled(*arguments)
                loss.backward()
            else:
                with torch.no_grad():
                    compiled(*arguments)
            torch.cuda.synchronize()
            self.log("compiled %s in %.1fs" % (function.__name__, time.time() - start))
            return compiled
        except Exception as error:
            self.log("compile failed, eager:", repr(error)[:300])
            return function


def learning_factor(step, progress, warm_up, floor):
    """Linear warm-up, constant to 30 % of the time, then linear decay to the floor."""
    decay = 1.0 if progress < 0.3 else max(floor, (1 - progress) / 0.7)
    return min(1.0, (step + 1) / warm_up) * decay


class Reporter:
    """Says when to report: ten times evenly over the run, and at a few early steps."""

    def __init__(self, early_steps):
        self.early_steps, self.next = early_steps, 0.0

    def is_due(self, step, progress):
        if progress >= self.next:
            self.next += 0.1
            return True
        return step in self.early_steps


# Stage 1: the target


class TargetTraining:
    """Half GSM8K in rows that begin with a document, half Python: modules at any offset and
    functions from their beginning."""

    def __init__(self, job, target, streams):
        self.job, self.arguments = job, job.arguments
        self.target, self.streams = target, streams
        self.starts = {
            name: (streams[name] == bpe.BOS).nonzero().flatten()
            for name in ("gsm", "py_mod", "py_fun")
        }
        self.gsm_length, self.python_length = (128, 256) if self.arguments.toy else (512, 1024)

    def windows(self, name, count, length):
        """Random windows that start at a document, so that position 0 is <bos>."""
        stream, starts = self.streams[name], self.starts[name]
        first = starts[torch.randint(len(starts), (count,), device=self.job.device)]
        last_possible = torch.tensor(len(stream) - length - 1, device=self.job.device)
        first = torch.minimum(first, last_possible)
        return stream[first[:, None] + self.job.arange(length + 1)]

    def batch(self):
        count, length = self.arguments.rows, self.python_length
        gsm = self.windows("gsm", count, self.gsm_length)
        modules = self.streams["py_mod"]
        first = torch.randint(len(modules) - length - 1, (count // 4,), device=self.job.device)
        anywhere = modules[first[:, None] + self.job.arange(length + 1)]
        return gsm, torch.cat([anywhere, self.windows("py_fun", count // 4, length)])

    def loss(self, window, drop=0.0):
        hidden, _ = self.target(window[:, :-1], drop=drop)
        logits = self.target.head(hidden)
        return F.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten())

    def half_step(self, window):
        with self.job.autocast():
            loss = self.loss(window, self.arguments.drop)
        (0.5 * loss).backward()
        return loss

    @torch.no_grad()
    def validate(self, name, length=512):
        stream = self.streams[name]
        windows = stream[: len(stream) // length * length].view(-1, length)
        with self.job.autocast():
            return self.loss(windows[: 8 if self.arguments.toy else None]).item()

    def validation(self, digits):
        gsm, python = self.validate("gsm_val"), self.validate("py_val")
        return f"val gsm {gsm:.{digits}f} py {python:.{digits}f}"

    def run(self):
        arguments, log = self.arguments, self.job.log
        log("target params", sum(p.numel() for p in self.target.parameters()))
        optimiser = Optimiser(self.target, arguments.lr_m, arguments.lr_a, arguments.wd)
        tokens_per_step = sum(part.numel() for part in self.batch())
        reporter = Reporter(early_steps=(20, 60))
        start, step, tokens = time.time(), 0, 0
        while True:
            elapsed = time.time() - start
            progress = max(elapsed / arguments.target_s, tokens / arguments.target_tokens)
            if progress >= 1:
                break
            gsm, python = self.batch()
            gsm_loss, python_loss = self.half_step(gsm), self.half_step(python)
            optimiser.step(learning_factor(step, progress, warm_up=50, floor=0.02))
            step += 1
            tokens += tokens_per_step
            if reporter.is_due(step, progress):
                log(
                    f"target step {step} tok {tokens / 1e6:.1f}M pr {progress:.2f} loss gsm "
                    f"{gsm_loss.item():.3f} py {python_loss.item():.3f} | {self.validation(3)}"
                )
        elapsed = time.time() - start
        log(f"target done step {step} tok {tokens / 1e6:.1f}M {elapsed:.1f}s {self.validation(4)}")
        round_bf16_(self.target)
        log("rounded " + self.validation(4))


def make_target(job):
    arguments = job.arguments
    streams = {
        name: torch.from_numpy(ids.astype(np.int64)).to(job.device)
        for name, ids in np.load(job.data("streams.npz")).items()
    }
    target = Target().to(job.device)
    if arguments.target:
        target.load_state_dict(load_bf16(arguments.target))
        job.log("loaded target", arguments.target)
    elif arguments.target_s > 0:
        TargetTraining(job, target, streams).run()
        save_bf16(target, job.out("target.safetensors"), {"format": "pt"})
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    return target.eval()


# Stage 2: rollouts


def read_ragged(path, longest):
    arrays = np.load(path)
    ends = np.cumsum(arrays["len"])
    rows = np.split(arrays["flat"].astype(np.int64), ends[:-1])
    return [row for row in rows if len(row) <= longest]


def monitor_texts(job, roller):
    """Greedy texts from held-out prompts, by domain: (ids, prompt lengths). Progress only."""
    arguments = job.arguments
    with open(job.data("prompt_pool.jsonl")) as file:
        pool = [json.loads(line) for line in file]

    def prompts(source, count):
        ids = [np.array(prompt["ids"]) for prompt in pool if prompt["source"] == source]
        return [row for row in ids if len(row) <= min(224, arguments.T // 2)][:count]

    texts = {}
    for name, source, count, toy_count in (
        ("gsm", "gsm8k-test", 256, 16),
        ("he", "humaneval", 64, 8),
    ):
        rows = prompts(source, toy_count if arguments.toy else count)
        lengths = torch.tensor([len(row) for row in rows], device=job.device)
        texts[name] = roller.run(rows, [0.0] * len(rows)), lengths
    return texts


@torch.no_grad()
def greedy_agreement(job, target, ids, prompt_lengths):
    """Share of the roller's greedy tokens that the plain forward pass would choose too."""
    chosen = target.head(target(ids)[0]).argmax(-1)[:, :-1]
    position = job.arange(1, ids.shape[1])
    generated = (position >= prompt_lengths[:, None]) & (ids[:, 1:] != bpe.PAD)
    return ((chosen == ids[:, 1:]) & generated).sum().div(generated.sum()).item()


def make_rollouts(job, target):
    """Rollouts to train on, and the monitor texts."""
    arguments = job.arguments
    tokenizer = bpe.Tokenizer.load(job.data("tokenizer.json"))
    longest = arguments.T // 2 + 16
    questions = read_ragged(job.data("gsm_q.npz"), longest)
    functions = read_ragged(job.data("py_q.npz"), longest)
    rng = np.random.default_rng(arguments.seed)
    mix = PromptMix(questions, functions, tokenizer, rng, arguments.py_frac, arguments.T)

    roller = Roller(target, arguments.rb, arguments.T)
    start = time.time()
    monitor = monitor_texts(job, roller)
    for name, (ids, _) in monitor.items():
        text = tokenizer.decode([token for token in ids[1].tolist() if token >= bpe.SPECIALS])
        job.log("sample", name, repr(text)[:900])
    ids, lengths = monitor["gsm"]
    agreement = greedy_agreement(job, target, ids[:64], lengths[:64])
    job.log(f"roller/forward greedy agreement {agreement:.4f}")

    rollouts = roll_out(roller, mix, deadline=start + arguments.rollout_s)
    seconds, left = time.time() - start, len(mix.written)
    job.log(f"rollouts {rollouts.describe()}, new questions left {left}, {seconds:.1f}s")
    return rollouts, monitor


# Stage 3: the drafter


class DrafterTraining:
    """Blocks at random generated positions; the loss weighs depth k with exp(-(k - 1) / 7)."""

    def __init__(self, job, target, drafter, rollouts, monitor):
        self.job, self.arguments = job, job.arguments
        self.target, self.drafter = target, drafter
        self.rollouts, self.monitor = rollouts, monitor
        self.block = DRAFTER["block"]
        self.depth_weight = torch.exp(-job.arange(self.block - 1).float() / 7)

    def features(self, ids):
        """fp32 (TF32 products on the GPU)."""
        return self.target(ids, tuple(DRAFTER["target_layer_ids"]))

    def draft_logits(self, features, bonus_embed, anchors):
        hidden = self.drafter(features, bonus_embed, anchors)
        return F.linear(hidden, self.target.embed.weight)

    def labels(self, ids, anchors, ends):
        """Tokens a block should predict, their positions, and which of them exist."""
        position = anchors[:, :, None] + self.job.arange(1, self.block)
        exists = position < ends[:, None, None]
        position = position.clamp(max=ids.shape[1] - 1)
        return ids.gather(1, position.flatten(1)).view_as(position), position, exists

    def loss(self, hidden, features, bonus_embed, ids, anchors, ends):
        """Cross entropy and half the divergence from the target's own distribution."""
        logits = self.draft_logits(features, bonus_embed, anchors)
        label, position, exists = self.labels(ids, anchors, ends)
        before = (position - 1).flatten(1)[:, :, None].expand(-1, -1, hidden.shape[2])
        target_logits = F.linear(hidden.gather(1, before), self.target.embed.weight)
        target_prob = target_logits.float().softmax(-1).view(*position.shape, -1)
        draft_log_prob = logits.float().log_softmax(-1)
        cross_entropy = -draft_log_prob.gather(-1, label[..., None])[..., 0]
        divergence = (target_prob * (target_prob.clamp(min=1e-9).log() - draft_log_prob)).sum(-1)
        weight = self.depth_weight * exists
        return ((cross_entropy + 0.5 * divergence) * weight).sum() / weight.sum()

    def batch(self, features_of):
        job, rollouts, count = self.job, self.rollouts, self.arguments.batch
        picked = torch.randint(len(rollouts), (count,), device=job.device)
        ids = rollouts.sequences[picked].long()
        first, end = rollouts.prompt_lengths[picked], rollouts.ends[picked]
        where = torch.rand(count, self.arguments.anchors, device=job.device)
        anchors = first[:, None] + (where * (end - 1 - first)[:, None]).long()
        with torch.no_grad():
            hidden, features = features_of(ids)
            bonus_embed = self.target.embed(ids.gather(1, anchors))
        return hidden, features, bonus_embed, ids, anchors, end

    @torch.no_grad()
    def acceptance(self, name):
        """From every generated position of the monitor texts: the mean number of drafted tokens
        that match the greedy text, plus the bonus; and how often the first one matches."""
        all_ids, all_lengths = self.monitor[name]
        all_ends = (all_ids != bpe.PAD).sum(1)
        accepted, total, first = 0.0, 0, 0.0
        for ids, lengths, ends in zip(all_ids.split(32), all_lengths.split(32), all_ends.split(32)):
            anchors = lengths[:, None] + self.job.arange(192)
            counted = anchors < (ends - 1)[:, None]
            anchors = anchors.clamp(max=ids.shape[1] - 2)
            _, features = self.features(ids)
            with self.job.autocast():
                bonus_embed = self.target.embed(ids.gather(1, anchors))
                logits = self.draft_logits(features, bonus_embed, anchors)
            label, _, exists = self.labels(ids, anchors, ends)
            match = (logits.argmax(-1) == label) & exists
            accepted += (match.long().cumprod(-1).sum(-1) * counted).sum().item()
            total += counted.sum().item()
            first += (match[..., 0] & counted).sum().item()
        return 1 + accepted / total, first / total

    def acceptances(self):
        gsm, gsm_first = self.acceptance("gsm")
        humaneval, humaneval_first = self.acceptance("he")
        return (
            f"gsm accept/anchor {gsm:.3f} (first {gsm_first:.3f}) "
            f"humaneval {humaneval:.3f} ({humaneval_first:.3f})"
        )

    def run(self):
        arguments, log = self.arguments, self.job.log
        log("drafter params", sum(p.numel() for p in self.drafter.parameters()))
        optimiser = Optimiser(self.drafter, arguments.dlr_m, arguments.dlr_a, 0.05)
        example = self.batch(self.features)
        features_of = self.job.try_compile(self.features, (example[3],), gradient=False)
        loss_of = self.job.try_compile(self.loss, example)
        for parameter in self.drafter.parameters():
            parameter.grad = None
        reporter = Reporter(early_steps=(20,))
        start, step, smooth = time.time(), 0, 0.0
        while (progress := (time.time() - start) / arguments.drafter_s) < 1:
            batch = self.batch(features_of)
            with self.job.autocast():
                loss = loss_of(*batch)
            loss.backward()
            optimiser.step(learning_factor(step, progress, warm_up=100, floor=0.01))
            step += 1
            if step % 8 == 0:  # reading the loss also keeps the host in step with the device
                smooth = loss.item() if smooth == 0 else 0.9 * smooth + 0.1 * loss.item()
            if reporter.is_due(step, progress):
                report = self.acceptances()
                log(f"drafter step {step} pr {progress:.2f} loss {smooth:.3f} | {report}")
        blocks = step * arguments.batch * arguments.anchors / 1e6
        log(f"drafter done step {step} blocks {blocks:.1f}M {self.acceptances()}")


def make_drafter(job, target, rollouts, monitor):
    drafter = Drafter().to(job.device)
    if job.arguments.drafter_init:
        drafter.load_state_dict(torch.load(job.arguments.drafter_init, map_location=job.device))
        job.log("loaded drafter", job.arguments.drafter_init)
    training = DrafterTraining(job, target, drafter, rollouts, monitor)
    training.run()
    state = {name: tensor.cpu() for name, tensor in drafter.state_dict().items()}
    torch.save(state, job.out("drafter_fp32.pt"))
    round_bf16_(drafter)
    job.log("rounded " + training.acceptances())
    save_bf16(drafter, job.out("drafter.safetensors"), {"format": "pt"})


def main():
    arguments = parse_arguments()
    job = Job(arguments)
    torch.manual_seed(arguments.seed)
    if job.on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    if arguments.toy:
        TARGET.update(hidden=64, layers=6, heads=4, kv_heads=2, head_dim=16, ffn=176)
        DRAFTER.update(layers=2, head_dim=16, ffn=128)
    job.log("torch", torch.__version__, job.device.type, vars(arguments))
    target = make_target(job)
    if arguments.drafter_s > 0:
        rollouts, monitor = make_rollouts(job, target)
        make_drafter(job, target, rollouts, monitor)
    if job.on_gpu:
        job.log("max memory GB %.1f" % (torch.cuda.max_memory_allocated() / 1e9))
    job.log("end")


if __name__ == "__main__":
    main()
