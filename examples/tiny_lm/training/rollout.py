"""Texts written by the target itself: what the drafter is trained on."""

import time

import numpy as np
import torch
import torch.nn.functional as F

import bpe
from lm import rope

NEVER_WRITTEN = [bpe.PAD, bpe.BOS, bpe.MASK]


class Roller:
    """Batched token-by-token decoding with a static KV cache; one CUDA graph per attention length.

    Everything that changes between steps lives in tensors, so that a step can be replayed.
    """

    def __init__(self, model, batch, length):
        self.batch, self.length, self.config = batch, length, model.config
        self.device = device = model.embed.weight.device
        self.dtype = dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.layers = [
            {name: p.detach().to(dtype) for name, p in layer.named_parameters()}
            for layer in model.layers
        ]
        self.embed = model.embed.weight.detach().to(dtype)
        self.norm = model.norm.weight.detach().to(dtype)
        self.cos, self.sin = model.cos[:length].to(dtype), model.sin[:length].to(dtype)
        c = self.config
        shape = c["layers"], batch, c["kv_heads"], length, c["head_dim"]
        self.k = torch.zeros(shape, dtype=dtype, device=device)
        self.v = torch.zeros_like(self.k)
        self.tokens = torch.zeros(batch, length, dtype=torch.long, device=device)
        self.prompt_length = torch.zeros(batch, dtype=torch.long, device=device)
        self.temperature = torch.ones(batch, 1, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.graphs = {}

    def rms(self, x, weight):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.config["eps"])
        return y.to(self.dtype) * weight

    def step(self, attended):
        """Decodes one position for all rows; attention looks at the first `attended` slots."""
        current = self.tokens.index_select(1, self.position)[:, 0]
        logits = self._forward(current, attended)
        logits[:, NEVER_WRITTEN] = float("-inf")
        uniform = torch.rand_like(logits).clamp_(1e-10, 1 - 1e-7)
        sampled = logits / self.temperature.clamp(min=1e-3) - torch.log(-torch.log(uniform))
        chosen = torch.where(self.temperature[:, 0] > 0, sampled.argmax(-1), logits.argmax(-1))

        following = self.position + 1
        ended = (current == bpe.EOS) | (current == bpe.PAD)
        chosen = torch.where(ended, torch.full_like(chosen, bpe.PAD), chosen)
        prompted = self.tokens.index_select(1, following)[:, 0]
        chosen = torch.where(following < self.prompt_length, prompted, chosen)
        self.tokens.index_copy_(1, following, chosen[:, None])
        self.position.add_(1)

    def _forward(self, current, attended):
        c, batch = self.config, self.batch
        heads, kv, dim = c["heads"], c["kv_heads"], c["head_dim"]
        x = self.embed[current]
        cos = self.cos.index_select(0, self.position)[:, None]
        sin = self.sin.index_select(0, self.position)[:, None]
        future = torch.arange(attended, device=self.device) > self.position
        for w, k_cache, v_cache in zip(self.layers, self.k, self.v):
            y = self.rms(x, w["attn_norm.weight"])
            q = rope((y @ w["wq.weight"].T).view(batch, heads, dim), cos, sin)
            k = rope((y @ w["wk.weight"].T).view(batch, kv, dim), cos, sin)
            v = (y @ w["wv.weight"].T).view(batch, kv, dim)
            k_cache.index_copy_(2, self.position, k[:, :, None])
            v_cache.index_copy_(2, self.position, v[:, :, None])
            q = q.view(batch, kv, heads // kv, dim) * dim**-0.5
            scores = (q @ k_cache[:, :, :attended].transpose(-1, -2)).float()
            weights = scores.masked_fill(future, float("-inf")).softmax(-1).to(self.dtype)
            out = (weights @ v_cache[:, :, :attended]).reshape(batch, heads * dim)
            x = x + out @ w["wo.weight"].T
            y = self.rms(x, w["ffn_norm.weight"])
            gated = F.silu(y @ w["w_gate.weight"].T) * (y @ w["w_up.weight"].T)
            x = x + gated @ w["w_down.weight"].T
        return (self.rms(x, self.norm) @ self.embed.T).float()

    def _capture(self, attended):
        """Records a step as a graph: one warm-up on another stream, the state put back."""
        position, tokens = self.position.clone(), self.tokens.clone()

        def restore():
            self.position.copy_(position)
            self.tokens.copy_(tokens)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.step(attended)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        restore()
        with torch.cuda.graph(graph):
            self.step(attended)
        restore()
        return graph

    def _advance(self, attended):
        if self.device.type != "cuda":
            self.step(attended)
            return
        if attended not in self.graphs:
            self.graphs[attended] = self._capture(attended)
        self.graphs[attended].replay()

    def _start(self, prompts, temperatures):
        tokens = np.zeros((self.batch, self.length), np.int64)
        lengths = np.ones(self.batch, np.int64)
        tokens[:, 0] = bpe.EOS  # unused rows stop at once
        for i, prompt in enumerate(prompts):
            tokens[i, : len(prompt)] = prompt
            lengths[i] = len(prompt)
        rows = torch.zeros(self.batch)
        rows[: len(prompts)] = torch.as_tensor(temperatures, dtype=torch.float32)
        self.tokens.copy_(torch.from_numpy(tokens))
        self.prompt_length.copy_(torch.from_numpy(lengths))
        self.temperature.copy_(rows[:, None])
        self.position.zero_()
        return int(lengths.max())

    def run(self, prompts, temperatures, longest=None):
        """Decodes at most `batch` prompts (id arrays): ids [n, length], <pad> after <eos>."""
        n = len(prompts)
        longest_prompt = self._start(prompts, temperatures)
        for t in range((longest or self.length) - 1):
            lengths = (128, 192, 256, 320, 384, self.length)
            attended = next(size for size in lengths if size > t or size == self.length)
            self._advance(min(attended, self.length))
            if t % 32 == 31 and t > longest_prompt:
                last = self.tokens[:n, t + 1]
                if bool(((last == bpe.PAD) | (last == bpe.EOS)).all()):
                    break
        return self.tokens[:n].clone()


class PromptMix:
    """Draws rollout prompts: GSM8K questions, questions that the target wrote, Python functions."""

    def __init__(self, questions, functions, tokenizer, rng, python_fraction, length):
        self.questions, self.functions, self.rng = questions, functions, rng
        self.opening = np.array([bpe.BOS] + tokenizer.encode("Question:"))
        self.closing = np.array(tokenizer.encode("\nAnswer:"))
        self.python_fraction, self.length = python_fraction, length
        self.written = []

    def write_questions(self, roller):
        """Samples question texts and keeps each up to its "\\nAnswer:"."""
        batch, size = roller.batch, len(self.closing)
        temperatures = self.rng.choice([0.7, 0.9, 1.0], batch)
        texts = roller.run([self.opening] * batch, temperatures, longest=min(200, self.length))
        for row in texts.cpu().numpy():
            for hit in np.flatnonzero(row == self.closing[-1]):
                if hit >= size and (row[hit - size + 1 : hit + 1] == self.closing).all():
                    if hit < self.length // 2:
                        self.written.append(row[: hit + 1])
                    break

    def draw(self, batch):
        """Prompts and temperatures in random order."""
        from_gsm8k = int(batch * (1 - self.python_fraction))
        prompts, temperatures = [], []
        for i in range(batch):
            prompts.append(self._question() if i < from_gsm8k else self._function())
            temperatures.append(self.rng.choice([0.0, 0.4, 0.8], p=[0.5, 0.2, 0.3]))
        order = self.rng.permutation(batch)
        return [prompts[i] for i in order], [temperatures[i] for i in order]

    def _question(self):
        draw = self.rng.random()
        if self.written and draw < 0.6:
            return self.written.pop()
        return self.questions[self.rng.integers(len(self.questions))]

    def _function(self):
        prompt = self.functions[self.rng.integers(len(self.functions))]
        if self.rng.random() < 0.4 and len(prompt) > 12:  # cut: the model finishes it its own way
            prompt = prompt[: self.rng.integers(8, len(prompt))]
        return prompt


class Rollouts:
    """Sequences [n, length], the lengths of their prompts and where they end."""

    def __init__(self, sequences, prompt_lengths):
        ends = (sequences != bpe.PAD).sum(1)
        long_enough = ends - prompt_lengths >= 3
        self.sequences, self.ends = sequences[long_enough], ends[long_enough]
        self.prompt_lengths = prompt_lengths[long_enough]

    def __len__(self):
        return len(self.sequences)

    def describe(self):
        tokens = self.ends.sum().item() / 1e6
        generated = (self.ends - self.prompt_lengths).sum().item() / 1e6
        finished = (self.sequences == bpe.EOS).any(1).float().mean().item()
        return (
            f"{len(self)} seqs, {tokens:.1f}M tokens ({generated:.1f}M generated), "
            f"finished {finished:.2f}"
        )


def roll_out(roller, mix, deadline):
    """Rolls out batches until the deadline, two at least; every third first writes questions."""
    sequences, lengths = [], []
    while time.time() < deadline or len(sequences) < 2:
        if len(sequences) % 3 == 0:
            mix.write_questions(roller)
        prompts, temperatures = mix.draw(roller.batch)
        sequences.append(roller.run(prompts, temperatures).to(torch.int16))
        lengths.append(torch.tensor([len(prompt) for prompt in prompts], device=roller.device))
    return Rollouts(torch.cat(sequences), torch.cat(lengths))
