"""Collects permissive text, trains the tokenizer, writes token streams and prompt lists.

Runs under a plain CPU Python with numpy. Usage: prep.py RAW OUT, where RAW holds gsm8k_train.jsonl,
gsm8k_test.jsonl, gsm8k_model_solutions.jsonl, HumanEval.jsonl.gz and, under debs/x, an unpacked
Debian libpython3.11-stdlib.
"""

import ast
import glob
import gzip
import json
import os
import random
import re
import sys
import textwrap
import time
from collections import Counter

import numpy as np

import bpe

VOCAB = 2048
HELD_OUT_FROM = 1019  # GSM8K test questions [1019, 1319) are never trained on
PYTHON_ROOTS = "debs/x/libpython3.11-stdlib/usr/lib/python3.11", "/usr/lib/python3.11"
NUMPY_ROOT = "/usr/lib/python3/dist-packages/numpy"
PYTHON_SKIPPED = re.compile(
    r"/(encodings|pydoc_data|idlelib|lib2to3/tests|test|turtledemo|site-packages|dist-packages"
    r"|__pycache__|ensurepip|config-[^/]*)/|_sysconfigdata|unicodedata"
)
NUMPY_SKIPPED = re.compile(r"/(f2py/tests|__pycache__|typing/tests|_pyinstaller)/")
SOLUTION_KINDS = (
    "ground_truth",
    "175b_verification",
    "175b_finetuning",
    "6b_verification",
    "6b_finetuning",
)
start = time.time()


def elapsed():
    return "%.0fs" % (time.time() - start)


def megabytes(texts):
    return sum(map(len, texts)) / 1e6


def read_lines(path):
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        return [json.loads(line) for line in file]


def question_text(problem):
    return "Question: %s\nAnswer:" % problem["question"].strip()


def answered_text(question, answer):
    return "Question: %s\nAnswer: %s" % (question.strip(), answer.strip())


class Gsm8k:
    """documents and questions to train on; validation documents and the held-out problems."""

    def __init__(self, raw):
        train = read_lines(raw + "/gsm8k_train.jsonl")
        test = read_lines(raw + "/gsm8k_test.jsonl")
        self.held_out = test[HELD_OUT_FROM:]
        self.documents = [answered_text(r["question"], r["answer"]) for r in train]
        self.solutions = self._add_solutions(read_lines(raw + "/gsm8k_model_solutions.jsonl"))
        self.questions = [question_text(r) for r in train + test[:HELD_OUT_FROM]]
        self.validation = [answered_text(r["question"], r["answer"]) for r in self.held_out]

    def _add_solutions(self, problems):
        """Adds correct published answers to test questions outside the held-out part."""
        held_out = {r["question"].strip() for r in self.held_out}
        seen, before = set(self.documents), len(self.documents)
        for problem in problems:
            if problem["question"].strip() in held_out:
                continue
            for kind in SOLUTION_KINDS:
                solution = problem[kind]
                if isinstance(solution, dict):
                    if not solution["is_correct"]:
                        continue
                    solution = solution["solution"]
                solution = re.sub(r"\nA: ", "\n#### ", solution)
                document = answered_text(problem["question"], solution)
                if document not in seen:
                    seen.add(document)
                    self.documents.append(document)
        return len(self.documents) - before


def python_files(raw):
    """(path, licence) of CPython 3.11's standard library and of numpy."""
    files = []
    for root in (raw + "/" + PYTHON_ROOTS[0], PYTHON_ROOTS[1]):
        found = glob.glob(root + "/**/*.py", recursive=True)
        files += [(path, "PSF") for path in found if not PYTHON_SKIPPED.search(path[len(root) :])]
    found = glob.glob(NUMPY_ROOT + "/**/*.py", recursive=True)
    for path in found:
        if not NUMPY_SKIPPED.search(path[len(NUMPY_ROOT) :]):
            files.append((path, "BSD-3"))
    return sorted(path for path in files if not os.path.islink(path[0]))


class PythonCode:
    """modules; functions, all documented ones and half of the others; prompts (signature and
    docstring of documented functions). Duplicates are left out."""

    def __init__(self, files, chance):
        self.modules, self.functions, self.prompts = [], [], []
        self.licences, self.chance, self.seen = Counter(), chance, set()
        for path, licence in files:
            with open(path, encoding="utf8", errors="replace") as file:
                source = file.read().replace("\t", "    ").replace("\r", "")
            if len(source) < 200 or source in self.seen:
                continue
            self.seen.add(source)
            self.licences[licence] += len(source)
            self.modules.append(source.strip("\n") + "\n")
            self._add_functions(source)
        chance.shuffle(self.modules)

    def _add_functions(self, source):
        try:
            tree = ast.parse(source)
        except Exception:
            return
        lines = source.split("\n")

        def text(first, last):
            return textwrap.dedent("\n".join(lines[first - 1 : last])).rstrip()

        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if node.end_lineno - node.lineno >= 80:
                continue
            function = text(node.lineno, node.end_lineno)
            if len(function) < 40 or function in self.seen:
                continue
            self.seen.add(function)
            if ast.get_docstring(node) and len(node.body) > 1:
                self.functions.append(function)
                prompt = text(node.lineno, node.body[0].end_lineno)
                if function.startswith(prompt):
                    self.prompts.append(prompt)
            elif self.chance.random() < 0.5:
                self.functions.append(function)


def train_tokenizer(gsm8k_documents, python_documents):
    counts = Counter()
    for document in gsm8k_documents:
        for piece in bpe.pieces(document.encode()):
            counts[piece] += 3  # about equal weight for both domains
    for document in python_documents:
        for piece in bpe.pieces(document.encode()):
            counts[piece] += 1
    print("unique pieces", len(counts), elapsed(), flush=True)
    repeated = Counter({piece: n for piece, n in sorted(counts.items()) if n > 1})
    return bpe.Tokenizer(bpe.train(repeated, VOCAB - bpe.FIRST_MERGE))


def token_stream(tokenizer, documents):
    ids = []
    for document in documents:
        ids.append(bpe.BOS)
        ids += tokenizer.encode(document)
        ids.append(bpe.EOS)
    return np.array(ids, np.uint16)


def write_ragged(tokenizer, path, texts, shortest=4, longest=224):
    """Prompts of different lengths as one flat array and their lengths."""
    rows = [[bpe.BOS] + tokenizer.encode(text) for text in texts]
    rows = [row for row in rows if shortest <= len(row) <= longest]
    lengths = np.array([len(row) for row in rows], np.int32)
    np.savez(path, flat=np.concatenate([np.array(row, np.uint16) for row in rows]), len=lengths)
    print(os.path.basename(path), len(rows), "mean len %.1f" % np.mean(lengths))


def held_out_prompts(tokenizer, gsm8k, humaneval):
    pool = []
    for i, problem in enumerate(gsm8k.held_out, start=HELD_OUT_FROM):
        text = question_text(problem)
        pool.append({"id": "gsm8k-test-%d" % i, "source": "gsm8k-test", "text": text})
    for task in humaneval:
        text = task["prompt"].rstrip()
        pool.append({"id": task["task_id"], "source": "humaneval", "text": text})
    for prompt in pool:
        prompt["ids"] = [bpe.BOS] + tokenizer.encode(prompt["text"])
        assert tokenizer.decode(prompt["ids"]) == prompt["text"]
    return pool


def report_lengths(pool):
    report = {}
    for source in ("gsm8k-test", "humaneval"):
        lengths = [len(prompt["ids"]) for prompt in pool if prompt["source"] == source]
        report[source] = len(lengths), float(np.mean(lengths)), max(lengths)
    print(report, elapsed())


def main(raw, out):
    os.makedirs(out, exist_ok=True)
    gsm8k = Gsm8k(raw)
    code = PythonCode(python_files(raw), random.Random(7))
    print(
        f"gsm docs {len(gsm8k.documents)} (model solutions {gsm8k.solutions}) "
        f"{megabytes(gsm8k.documents):.2f} MB; modules {len(code.modules)} {dict(code.licences)}; "
        f"functions {len(code.functions)} {megabytes(code.functions):.2f} MB; "
        f"function prompts {len(code.prompts)}",
        flush=True,
    )
    tokenizer = train_tokenizer(gsm8k.documents, code.modules + code.functions)
    tokenizer.save(out + "/tokenizer.json")
    print("merges", len(tokenizer.merges), elapsed(), flush=True)

    documents = {
        "gsm": gsm8k.documents,
        "py_mod": code.modules[12:],
        "py_fun": code.functions,
        "gsm_val": gsm8k.validation,
        "py_val": code.modules[:12],
    }
    streams = {name: token_stream(tokenizer, texts) for name, texts in documents.items()}
    for name, stream in streams.items():
        print(name, len(stream), "tokens")
    np.savez(out + "/streams.npz", **streams)
    write_ragged(tokenizer, out + "/gsm_q.npz", gsm8k.questions)
    write_ragged(tokenizer, out + "/py_q.npz", code.prompts)

    pool = held_out_prompts(tokenizer, gsm8k, read_lines(raw + "/HumanEval.jsonl.gz"))
    with open(out + "/prompt_pool.jsonl", "w") as file:
        for prompt in pool:
            file.write(json.dumps(prompt) + "\n")
    report_lengths(pool)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
