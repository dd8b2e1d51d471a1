# SPDX-License-Identifier: Apache-2.0
"""The same steps on the host, in Python and torch, as forks of engines do them: what the library is
timed against."""

import heapq

import torch


class HostSteps:
    """Tree, mask, walk and compaction of one request; the interface of decode.LibrarySteps."""

    def __init__(self, depth, top_k, budget, vocab, dtype, device):
        self.depth, self.top_k, self.budget = depth, min(top_k, vocab), budget
        self.dtype, self.device = dtype, device

    def begin(self, length, bonus):
        self.length, self.bonus = length, bonus

    def draft(self, logits):
        """Input ids, positions and mask of the target's forward pass."""
        best = logits.float().log_softmax(-1).topk(self.top_k, -1)
        log_prob, token = best.values.cpu().tolist(), best.indices.cpu().tolist()
        self.nodes = self._build(token, log_prob)
        n, width = len(self.nodes), self.budget + 1
        padding = width - n
        ids = [node[0] for node in self.nodes] + [self.bonus] * padding
        positions = [self.length + node[2] for node in self.nodes] + [self.length] * padding
        visible = torch.eye(width, dtype=torch.bool)
        for i, node in enumerate(self.nodes[1:], 1):
            visible[i] |= visible[node[1]]
        mask = torch.zeros(width, self.length + width, dtype=self.dtype)
        mask[:, self.length :].masked_fill_(~visible, torch.finfo(self.dtype).min)
        to = self.device
        return (
            torch.tensor([ids]).to(to),
            torch.tensor([positions]).to(to),
            mask[None, None].to(to),
        )

    def _build(self, token, log_prob):
        nodes = [(self.bonus, -1, 0)]
        heap = [(-log_prob[0][0], (0,), 0)]
        while heap and len(nodes) <= self.budget:
            negative, ranks, parent = heapq.heappop(heap)
            depth, rank = len(ranks), ranks[-1]
            nodes.append((token[depth - 1][rank], parent, depth))
            if depth < self.depth:
                heapq.heappush(heap, (negative - log_prob[depth][0], (*ranks, 0), len(nodes) - 1))
            if rank + 1 < self.top_k:
                step = log_prob[depth - 1][rank] - log_prob[depth - 1][rank + 1]
                heapq.heappush(heap, (negative + step, (*ranks[:-1], rank + 1), parent))
        return nodes

    def commit(self, logits, cache, features):
        """The tokens of this round, bonus last, and the features of the committed rows."""
        target = logits[0].argmax(-1).tolist()
        children = [{} for _ in self.nodes]
        for i, node in enumerate(self.nodes[1:], 1):
            children[node[1]].setdefault(node[0], i)
        path = [0]
        while target[path[-1]] in children[path[-1]]:
            path.append(children[path[-1]][target[path[-1]]])
        kept = torch.tensor(path, device=self.device)
        moved = self.length + kept
        end = self.length + len(path)
        for layer in cache.layers:
            layer.keys[:, :, self.length : end] = layer.keys[:, :, moved]
            layer.values[:, :, self.length : end] = layer.values[:, :, moved]
        self.bonus, self.length = target[path[-1]], end
        if len(path) <= self.budget:
            cache.crop(len(path) - self.budget - 1)
        return [self.nodes[i][0] for i in path[1:]] + [self.bonus], features[0, kept]
