"""Byte-level BPE with a hand-implementable pre-tokenisation rule (pure Python).

Byte classes: N = 0x0A, S = 0x20, D = '0'..'9', L = A-Z a-z '_' and every byte >= 0x80,
P = everything else (punctuation, tab, CR, control bytes).
Scanning left to right at byte i, the next piece is
  1. N:  all consecutive N bytes, then all consecutive S bytes            (N+ S*)
  2. D:  that single byte
  3. L:  the maximal run of L bytes;   P: the maximal run of P bytes
  4. S:  let r = length of the S run and c = the class of the byte after the run.
         c is N or end of text:  the piece is the whole run (r spaces).
         otherwise, r >= 2:      the piece is the first r-1 spaces.
         otherwise (r == 1):     the piece is that space plus the unit after it, where the unit
                                 is one D byte, or a maximal L run, or a maximal P run.
Inside a piece: start from single-byte ids (4 + byte); while some adjacent pair is in the merge
table, take the pair of LOWEST rank (leftmost occurrence first) and replace it by id 260 + rank.
"""

import heapq
import json
from collections import Counter
from collections import defaultdict

PAD, BOS, EOS, MASK, SPECIALS = 0, 1, 2, 3, 4
FIRST_MERGE = SPECIALS + 256
PUNCTUATION, LETTER, DIGIT, SPACE, NEWLINE = range(5)


def byte_class(byte):
    char = chr(byte)
    if byte >= 128 or char == "_" or "a" <= char <= "z" or "A" <= char <= "Z":
        return LETTER
    if "0" <= char <= "9":
        return DIGIT
    return {" ": SPACE, "\n": NEWLINE}.get(char, PUNCTUATION)


CLASSES = [byte_class(byte) for byte in range(256)]


def run_end(data, at, kind):
    while at < len(data) and CLASSES[data[at]] == kind:
        at += 1
    return at


def unit_end(data, at):
    """End of one digit, or of a run of letters or of punctuation."""
    kind = CLASSES[data[at]]
    return at + 1 if kind == DIGIT else run_end(data, at, kind)


def piece_end(data, at):
    kind = CLASSES[data[at]]
    if kind == NEWLINE:
        return run_end(data, run_end(data, at, NEWLINE), SPACE)
    if kind != SPACE:
        return unit_end(data, at)
    end = run_end(data, at, SPACE)
    if end == len(data) or CLASSES[data[end]] == NEWLINE:
        return end
    return end - 1 if end - at >= 2 else unit_end(data, end)


def pieces(data):
    at = 0
    while at < len(data):
        end = piece_end(data, at)
        yield data[at:end]
        at = end


def merge_pair(ids, pair, merged):
    """ids with every occurrence of the pair, from the left, replaced."""
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            out.append(merged)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def train(counts, n_merges):
    """counts: Counter piece -> weight. Returns merges as (idA, idB); new id = 260 + rank.

    Ties go to the smallest (idA, idB), so the result does not depend on hash order.
    """
    words = [[SPECIALS + byte for byte in piece] for piece in counts]
    weights = list(counts.values())
    pair_count, where = Counter(), defaultdict(set)
    for word, (ids, weight) in enumerate(zip(words, weights)):
        for pair in zip(ids, ids[1:]):
            pair_count[pair] += weight
            where[pair].add(word)
    heap = [(-count, pair) for pair, count in pair_count.items()]
    heapq.heapify(heap)
    merges = []
    while len(merges) < n_merges and heap:
        negative, pair = heapq.heappop(heap)
        if pair_count.get(pair, 0) != -negative:  # a stale entry: its count has changed since
            if pair_count.get(pair, 0) > 0:
                heapq.heappush(heap, (-pair_count[pair], pair))
            continue
        merged = FIRST_MERGE + len(merges)
        merges.append(pair)
        touched = set()
        for word in where.pop(pair):
            ids, weight = words[word], weights[word]
            for old in zip(ids, ids[1:]):
                pair_count[old] -= weight
            words[word] = ids = merge_pair(ids, pair, merged)
            for new in zip(ids, ids[1:]):
                pair_count[new] += weight
                where[new].add(word)
                touched.add(new)
        pair_count.pop(pair, None)
        for new in touched:
            heapq.heappush(heap, (-pair_count[new], new))
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = [tuple(merge) for merge in merges]
        self.rank = {merge: rank for rank, merge in enumerate(self.merges)}
        self.tokens = [b""] * SPECIALS + [bytes([byte]) for byte in range(256)]
        for a, b in self.merges:
            self.tokens.append(self.tokens[a] + self.tokens[b])
        self.cache = {}

    def encode_piece(self, piece):
        if piece not in self.cache:
            ids = [SPECIALS + byte for byte in piece]
            while len(ids) > 1:
                ranks = [self.rank.get(pair) for pair in zip(ids, ids[1:])]
                best = min((rank for rank in ranks if rank is not None), default=None)
                if best is None:
                    break
                at = ranks.index(best)
                ids[at : at + 2] = [FIRST_MERGE + best]
            self.cache[piece] = tuple(ids)
        return self.cache[piece]

    def encode(self, text):
        """Ids of str or bytes."""
        ids = []
        for piece in pieces(text.encode("utf-8") if isinstance(text, str) else text):
            ids.extend(self.encode_piece(piece))
        return ids

    def decode(self, ids):
        return b"".join(self.tokens[i] for i in ids).decode("utf-8", "replace")

    def save(self, path):
        rule = " ".join(line.strip() for line in __doc__.strip().splitlines()[2:])
        special = '{"<pad>": 0, "<bos>": 1, "<eos>": 2, "<mask>": 3}'
        tokens = json.dumps([token.hex() for token in self.tokens], separators=(",", ":"))
        merges = json.dumps([list(merge) for merge in self.merges], separators=(",", ":"))
        with open(path, "w") as file:
            file.write('{"pretokenizer": %s,\n"special": %s,\n' % (json.dumps(rule), special))
            file.write('"tokens": %s,\n"merges": %s}\n' % (tokens, merges))

    @staticmethod
    def load(path):
        with open(path) as file:
            return Tokenizer(json.load(file)["merges"])
