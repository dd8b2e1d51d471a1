"""Reference inference (CPU, fp32 or fp64): autoregressive, chain DFlash and DDTree on the shipped
files. A library: evaluate.py and golden.py use it."""

import heapq
import json

import numpy as np
import torch

from lm import rope
from lm import rope_table
from weights import load_bf16

EOS = 2


def rms(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def attend(q, k, v, hidden):
    """q [n, heads, dim], k and v [m, kv_heads, dim], hidden [n, m] bool (True = not visible) or
    None -> [n, heads * dim]"""
    n, heads, dim = q.shape
    kv = k.shape[1]
    group = heads // kv
    q = q.view(n, kv, group, dim).permute(1, 2, 0, 3).reshape(kv, group * n, dim)
    scores = (q @ k.permute(1, 2, 0)) * (dim**-0.5)
    if hidden is not None:
        scores = scores.view(kv, group, n, -1).masked_fill(hidden, float("-inf"))
        scores = scores.view(kv, group * n, -1)
    out = scores.softmax(-1) @ v.transpose(0, 1)
    return out.view(kv, group, n, dim).permute(2, 0, 1, 3).reshape(n, heads * dim)


class Weights:
    """The tensors of one file and the layer that both models share."""

    def __init__(self, path, config, dtype):
        self.tensors = {name: tensor.to(dtype) for name, tensor in load_bf16(path).items()}
        self.config = config

    def layer(self, index, x, position, table, cached_k, cached_v, hidden):
        """One transformer layer after the cached rows. Returns x and this call's K and V rows."""
        eps, dim = self.config["eps"], self.config["head_dim"]
        n = x.shape[0]

        def weight(name):
            return self.tensors["layers.%d.%s.weight" % (index, name)]

        y = rms(x, weight("attn_norm"), eps)
        cos, sin = table[0][position][:, None], table[1][position][:, None]
        q = rope((y @ weight("wq").T).view(n, -1, dim), cos, sin)
        k = rope((y @ weight("wk").T).view(n, -1, dim), cos, sin)
        v = (y @ weight("wv").T).view(n, -1, dim)
        attended = attend(q, torch.cat([cached_k, k]), torch.cat([cached_v, v]), hidden)
        x = x + attended @ weight("wo").T
        y = rms(x, weight("ffn_norm"), eps)
        gate = y @ weight("w_gate").T
        x = x + (gate * torch.sigmoid(gate) * (y @ weight("w_up").T)) @ weight("w_down").T
        return x, k, v


class Engine:
    """Target and drafter with the caches of one sequence."""

    def __init__(self, folder, dtype=torch.float32):
        with open(folder + "/config.json") as file:
            config = json.load(file)
        self.dtype = dtype
        self.target_config, self.drafter_config = config["target"], config["drafter"]
        self.target_weights = Weights(folder + "/target.safetensors", self.target_config, dtype)
        self.drafter_weights = Weights(folder + "/drafter.safetensors", self.drafter_config, dtype)
        self.embed = self.target_weights.tensors["embed.weight"]
        self.table = rope_table(
            self.target_config["ctx"] + self.drafter_config["block"],
            self.target_config["head_dim"],
            self.target_config["theta"],
            dtype=dtype,
        )

    def reset(self):
        def empty(config):
            shape = 0, config["kv_heads"], config["head_dim"]
            return [torch.zeros(shape, dtype=self.dtype) for _ in range(config["layers"])]

        self.k, self.v = empty(self.target_config), empty(self.target_config)
        self.context_k, self.context_v = empty(self.drafter_config), empty(self.drafter_config)

    def target(self, ids, position, hidden):
        """Appends to the target's cache. Returns logits [n, vocab], features [n, 3 * hidden]."""
        x, features = self.embed[ids], []
        for i in range(self.target_config["layers"]):
            x, k, v = self.target_weights.layer(
                i, x, position, self.table, self.k[i], self.v[i], hidden
            )
            self.k[i], self.v[i] = torch.cat([self.k[i], k]), torch.cat([self.v[i], v])
            if i in self.drafter_config["target_layer_ids"]:
                features.append(x)
        norm = self.target_weights.tensors["norm.weight"]
        logits = rms(x, norm, self.target_config["eps"]) @ self.embed.T
        return logits, torch.cat(features, -1)

    def keep(self, past, rows):
        """Keeps the first `past` cache rows and the rows past + rows[...]."""
        kept = torch.cat([torch.arange(past), past + torch.tensor(rows, dtype=torch.long)])
        self.k, self.v = [k[kept] for k in self.k], [v[kept] for v in self.v]

    def add_context(self, features, position):
        """Projects committed tokens' features into every drafter layer's context K and V."""
        tensors, dim = self.drafter_weights.tensors, self.drafter_config["head_dim"]
        n = len(position)
        context = rms(
            features @ tensors["fc.weight"].T,
            tensors["hidden_norm.weight"],
            self.drafter_config["eps"],
        )
        cos, sin = self.table[0][position][:, None], self.table[1][position][:, None]
        for i in range(self.drafter_config["layers"]):
            k = rope((context @ tensors["layers.%d.wk.weight" % i].T).view(n, -1, dim), cos, sin)
            v = (context @ tensors["layers.%d.wv.weight" % i].T).view(n, -1, dim)
            self.context_k[i] = torch.cat([self.context_k[i], k])
            self.context_v[i] = torch.cat([self.context_v[i], v])

    def draft(self, bonus, start):
        """logits [block - 1, vocab]; row j - 1 predicts position start + j from those before."""
        assert self.context_k[0].shape[0] == start
        size, tensors = self.drafter_config["block"], self.drafter_weights.tensors
        x = torch.cat([self.embed[bonus][None], tensors["mask_embed"][None].expand(size - 1, -1)])
        position = torch.arange(start, start + size)
        for i in range(self.drafter_config["layers"]):
            x, _, _ = self.drafter_weights.layer(
                i, x, position, self.table, self.context_k[i], self.context_v[i], None
            )
        return rms(x[1:], tensors["norm.weight"], self.drafter_config["eps"]) @ self.embed.T


def topk_logprobs(logits, k):
    """By row: ids by (logit descending, id ascending) and fp32 logit - logsumexp of each."""
    logits = logits.float()
    ids = np.argsort(-logits.numpy(), axis=-1, kind="stable")[:, :k]
    log_probs = (logits - torch.logsumexp(logits, -1, keepdim=True)).numpy()
    return ids, np.take_along_axis(log_probs, ids, -1).astype(np.float32)


def build_tree(logits, budget):
    """Best-first over rank paths: nodes (token, parent, depth) in pop order, node 0 = the bonus.

    The score is the fp32 sum of log-probabilities along the path; larger first, ties by the
    lexicographically smaller rank path.
    """
    k = min(budget, logits.shape[-1])
    ids, log_probs = topk_logprobs(logits, k)
    depths = log_probs.shape[0]
    nodes = [(-1, -1, 0)]
    # (-score, rank path, parent, the parent's score)
    heap = [(-float(log_probs[0, 0]), (0,), 0, np.float32(0.0))]

    def push(score, path, parent, parent_score):
        heapq.heappush(heap, (-float(np.float32(score)), path, parent, parent_score))

    while heap and len(nodes) <= budget:
        negative, path, parent, parent_score = heapq.heappop(heap)
        depth, rank, node = len(path), path[-1], len(nodes)
        nodes.append((int(ids[depth - 1, rank]), parent, depth))
        score = np.float32(-negative)
        if rank + 1 < k:
            sibling = parent_score + log_probs[depth - 1, rank + 1]
            push(sibling, path[:-1] + (rank + 1,), parent, parent_score)
        if depth < depths:
            push(score + log_probs[depth, 0], path + (0,), node, score)
    return nodes


def draft_nodes(logits, budget):
    """The drafted nodes: a tree, or with budget None the chain of each depth's best token."""
    if budget is not None:
        return build_tree(logits, budget)
    tokens = logits.argmax(-1).tolist()
    return [(-1, -1, 0)] + [(token, i, i + 1) for i, token in enumerate(tokens)]


def ancestors_or_self(nodes):
    visible = torch.zeros(len(nodes), len(nodes), dtype=torch.bool)
    visible[0, 0] = True
    for i in range(1, len(nodes)):
        visible[i] = visible[nodes[i][1]]
        visible[i, i] = True
    return visible


def walk(nodes, chosen):
    """From the bonus to the child whose token the target chose, until there is none."""
    child = {(parent, token): i for i, (token, parent, _) in enumerate(nodes) if i}
    path = [0]
    while (path[-1], chosen[path[-1]]) in child:
        path.append(child[path[-1], chosen[path[-1]]])
    return path


def smallest_gap(logits):
    """Smallest difference between the best and the second best logit of a row."""
    top = logits.topk(2, -1).values
    return float((top[..., 0] - top[..., 1]).min())


@torch.no_grad()
def prefill(engine, prompt):
    engine.reset()
    n = len(prompt)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    logits, features = engine.target(torch.tensor(prompt), torch.arange(n), future)
    return logits[-1], features


@torch.no_grad()
def autoregress(engine, prompt, max_new):
    """Plain greedy decoding: output ids and the smallest gap on the path."""
    logits, _ = prefill(engine, prompt)
    out, gap = [], 1e9
    while True:
        gap = min(gap, smallest_gap(logits))
        out.append(int(logits.argmax()))
        if out[-1] == EOS or len(out) >= max_new:
            return out, gap
        position = torch.tensor([len(prompt) + len(out) - 1])
        logits = engine.target(torch.tensor(out[-1:]), position, None)[0][0]


@torch.no_grad()
def speculate(engine, prompt, max_new, budget=None, trace=0):
    """Speculative decoding; budget None is chain DFlash.

    Returns output ids, accepted counts by round (bonus included, not cut at <eos> or max_new), the
    smallest gap along accepted rows, and traces of the first `trace` rounds.
    """
    logits, features = prefill(engine, prompt)
    n = len(prompt)
    sequence, start = list(prompt) + [int(logits.argmax())], n
    engine.add_context(features, torch.arange(n))
    accepted, gap, traces = [], smallest_gap(logits), []
    while start < n + max_new - 1 and EOS not in sequence[n:]:
        bonus = sequence[start]
        draft = engine.draft(bonus, start)
        nodes = draft_nodes(draft, budget)
        ids = torch.tensor([bonus] + [token for token, _, _ in nodes[1:]])
        depth = torch.tensor([depth for _, _, depth in nodes])
        past = torch.zeros(len(nodes), start, dtype=torch.bool)
        hidden = torch.cat([past, ~ancestors_or_self(nodes)], 1)
        logits, features = engine.target(ids, start + depth, hidden)
        chosen = logits.argmax(-1).tolist()
        path = walk(nodes, chosen)
        gap = min(gap, smallest_gap(logits[path]))
        if len(traces) < trace:
            traces.append(trace_round(start, bonus, draft, nodes, path, chosen[path[-1]]))
        sequence = sequence[:start] + [int(ids[i]) for i in path] + [chosen[path[-1]]]
        engine.keep(start, path)
        engine.add_context(features[path], torch.arange(start, start + len(path)))
        accepted.append(len(path))
        start += len(path)
    out = sequence[n:][:max_new]
    if EOS in out:
        out = out[: out.index(EOS) + 1]
    return out, accepted, gap, traces


def trace_round(start, bonus, draft, nodes, path, next_bonus):
    top_ids, top_logprobs = topk_logprobs(draft, 16)
    return {
        "start": start,
        "bonus": bonus,
        "top_ids": top_ids.tolist(),
        "top_logprobs": [[round(float(x), 6) for x in row] for row in top_logprobs],
        "tree": [list(node) for node in nodes[1:]],
        "accepted_nodes": path,
        "next_bonus": next_bonus,
    }
