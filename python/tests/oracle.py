# SPDX-License-Identifier: Apache-2.0
"""DDTree (arXiv 2604.12989) restated for one request, in plain Python: sections 3 and 4."""

import heapq
import math

import numpy


def candidates(logits, top_k):
    """By row: the top_k tokens, equal logits by the lower id, and their log-probs."""
    logits = logits.astype(numpy.float64)
    token = numpy.argsort(-logits, axis=-1, kind="stable")[:, :top_k]
    largest = logits.max(-1, keepdims=True)
    log_sum = largest + numpy.log(numpy.exp(logits - largest).sum(-1, keepdims=True))
    return token, numpy.take_along_axis(logits - log_sum, token, -1)


def tree(token, log_prob, root, budget):
    """Algorithm 1: nodes (token, parent, depth, rank, weight) as the heap gives them.

    An entry of the heap is (weight, ranks of the path); popping one offers its first child and its
    next sibling. Weights are integers, of log-probs rounded to 2^-44.
    """
    depth, top_k = token.shape
    weight = [[round(math.ldexp(float(x), 44)) for x in row] for row in log_prob]
    nodes = [(int(root), -1, 0, -1, 0.0)]
    if budget == 0 or depth == 0:
        return nodes
    heap = [(-weight[0][0], (0,), 0)]
    while heap and len(nodes) <= budget:
        negative, ranks, parent = heapq.heappop(heap)
        d, rank = len(ranks), ranks[-1]
        own = weight[d - 1][rank]
        nodes.append((int(token[d - 1][rank]), parent, d, rank, math.ldexp(-negative, -44)))
        if d < depth:
            heapq.heappush(heap, (negative - weight[d][0], (*ranks, 0), len(nodes) - 1))
        if rank + 1 < top_k:
            sibling = negative + own - weight[d - 1][rank + 1]
            heapq.heappush(heap, (sibling, (*ranks[:-1], rank + 1), parent))
    return nodes


def visible(nodes, width):
    """[width, width]: row i sees its ancestors and itself; padding sees itself."""
    mask = numpy.eye(width, dtype=bool)
    for i, node in enumerate(nodes[1:], 1):
        mask[i] |= mask[node[1]]
    return mask


def walk(nodes, target_token):
    """The accepted path from the root, and the bonus."""
    path = [0]
    while True:
        wanted = target_token[path[-1]]
        matches = [i for i, n in enumerate(nodes) if n[1] == path[-1] and n[0] == wanted]
        if not matches:
            return path, int(wanted)
        path.append(min(matches))
