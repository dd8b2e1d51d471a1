#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what ddtree_bench (and its peers) wrote with --benchmark_out.

    report.py merge OUT.json IN.json...        rows of all, context of the first
    report.py table RESULTS.json               a Markdown table
    report.py readme RESULTS.json README.md    the same between README's markers
    report.py chart RESULTS.json OUT.svg       time against floor, by case and variant
    report.py compare A.json B.json            what changed from A to B

table and chart take --all, for the inputs and mask regions that are left out otherwise.
"""
import argparse
import json
import math
import re
import sys
from collections import defaultdict
from html import escape

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


class Row:
    """One series: operation/variant/case, cold or hot on a GPU, "" elsewhere."""

    def __init__(self, entry):
        name = re.sub(r"/iterations:\d+|/manual_time|/real_time", "", entry["run_name"])
        name, _, self.regime = name.rpartition("/") if name.endswith(("/cold", "/hot")) else (name, "", "")
        self.op, self.variant, self.case = name.split("/", 2)
        self.us = entry.get("us", entry["real_time"] * US[entry["time_unit"]])
        self.floor = entry.get("floor_us")
        self.share = entry.get("roof_share")
        self.chosen = bool(entry.get("chosen"))

    @property
    def key(self):
        return (self.op, self.variant, self.case, self.regime)


def load(path):
    with open(path) as file:
        return json.load(file)


def rows_of(document):
    """One row a series; of repetitions the median."""
    found = {}
    for entry in document["benchmarks"]:
        if entry.get("error_occurred"):
            continue
        is_median = entry.get("aggregate_name") == "median"
        if entry["run_type"] == "iteration" or is_median:
            row = Row(entry)
            if is_median or row.key not in found:
                found[row.key] = row
    return list(found.values())


def on_gpu(rows, everything):
    extra = re.compile(r"/input:|columns:recent")
    return [r for r in rows if r.regime and (everything or not extra.search("/" + r.case))]


def by_case(rows):
    cases = defaultdict(list)
    for row in rows:
        cases[row.op, row.case].append(row)
    return cases


def number(x):
    """Three digits."""
    if x is None:
        return ""
    if x == 0:
        return "0"
    return f"{x:.{max(0, 2 - math.floor(math.log10(abs(x))))}f}"


def origin(context):
    names = ("device", "driver", "cuda_runtime", "ddtree")
    known = [f"{name} {context[name]}" for name in names if name in context]
    roofs = [f"{what} {context[f'roof_{what}_gb_per_s']}"
             for what in ("read", "write", "copy") if f"roof_{what}_gb_per_s" in context]
    return ", ".join(known) + (f"; roofs in GB/s: {', '.join(roofs)}" if roofs else "")


def table(document, everything=False):
    lines = [f"{origin(document['context'])}. Medians in µs.", "",
             "| operation | case | variant | cold | hot | floor | of the roof | beside it |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"]
    before = None
    for (op, case), rows in by_case(on_gpu(rows_of(document), everything)).items():
        time = {(r.variant, r.regime): r for r in rows}
        variants = list(dict.fromkeys(r.variant for r in rows))
        ours = next((r.variant for r in rows if r.chosen), variants[0])
        cold, hot = time.get((ours, "cold")), time.get((ours, "hot"))
        shown = cold or hot
        others = [f"{v} {number(time[v, shown.regime].us)}"
                  for v in variants if v != ours and (v, shown.regime) in time]
        share = f"{100 * cold.share:.0f} %" if cold and cold.share is not None else ""
        lines.append("| " + " | ".join([
            f"`{op}`" if op != before else "", case.replace("/", ", "), ours,
            number(cold.us) if cold else "", number(hot.us) if hot else "",
            number(shown.floor), share, ", ".join(others)]) + " |")
        before = op
    return "\n".join(lines)


def put_between_markers(path, text):
    with open(path, encoding="utf-8") as file:
        page = file.read()
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path} has no {BEGIN} ... {END}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}{BEGIN}\n{text}\n{END}{tail}")


COLOURS = ["#2b6cb0", "#dd6b20", "#38a169", "#805ad5", "#d53f8c", "#718096"]


def chart(document, everything=False):
    """Bars on a logarithmic scale; a black tick is the floor."""
    rows = on_gpu(rows_of(document), everything)
    cases = by_case(rows)
    variants = list(dict.fromkeys(r.variant for r in rows))
    colour = {v: COLOURS[i % len(COLOURS)] for i, v in enumerate(variants)}
    left, width, bar, gap, top = 430, 560, 9, 7, 60
    highest = max(r.us for r in rows)
    decades = math.ceil(math.log10(highest)) + 1  # from 0.1 µs on

    def x(us):
        return left + width * min(1.0, max(0.0, (math.log10(us) + 1) / decades)) if us else left

    parts, y = [], top
    for (op, case), series in cases.items():
        parts.append(f'<text x="{left - 8}" y="{y + bar}" text-anchor="end">{escape(op)} '
                     f'{escape(case.replace("/", " "))}</text>')
        for r in series:
            label = f"{r.variant}, {r.regime}: {number(r.us)} µs"
            fade = 1 if r.regime == "cold" else 0.55
            parts.append(f'<rect x="{left}" y="{y}" width="{x(r.us) - left:.1f}" height="{bar}" '
                         f'fill="{colour[r.variant]}" fill-opacity="{fade}">'
                         f'<title>{escape(label)}</title></rect>'
                         f'<text x="{x(r.us) + 4:.1f}" y="{y + bar - 1}">{number(r.us)}</text>')
            if r.floor:
                parts.append(f'<rect x="{x(r.floor) - 1:.1f}" y="{y - 1}" width="2" '
                             f'height="{bar + 2}" fill="black"/>')
            y += bar + 1
        y += gap
    axis = []
    for power in range(decades + 1):
        us = 10.0 ** (power - 1)
        axis.append(f'<line x1="{x(us):.1f}" x2="{x(us):.1f}" y1="{top - 8}" y2="{y}" '
                    f'stroke="#ddd"/><text x="{x(us):.1f}" y="{top - 12}" '
                    f'text-anchor="middle">{us:g} µs</text>')
    legend, at = [], left
    for v in variants:
        legend.append(f'<rect x="{at}" y="28" width="10" height="10" fill="{colour[v]}"/>'
                      f'<text x="{at + 14}" y="37">{escape(v)}</text>')
        at += 30 + 7 * len(v)
    title = f'<text x="8" y="16">{escape(origin(document["context"]))}. Pale: hot. Tick: floor.</text>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" '
                      f'height="{y + 8}" font-family="sans-serif" font-size="10">',
                      '<rect width="100%" height="100%" fill="white"/>', title,
                      *axis, *legend, *parts, "</svg>"])


def compare(a, b):
    before = {r.key: r for r in rows_of(a)}
    lines = [f"A: {origin(a['context'])}", f"B: {origin(b['context'])}", "",
             "| series | A µs | B µs | B / A |", "| --- | ---: | ---: | ---: |"]
    ratios = []
    for row in rows_of(b):
        if row.key not in before:
            continue
        old = before[row.key]
        ratios.append(row.us / old.us)
        name = "/".join(part for part in row.key if part)
        lines.append(f"| {name} | {number(old.us)} | {number(row.us)} | {ratios[-1]:.3f} |")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines += ["", f"{len(ratios)} series in both: B / A from {min(ratios):.3f} to "
                      f"{max(ratios):.3f}, geometric mean {mean:.3f}."]
    return "\n".join(lines)


def merge(documents):
    rows = [entry for document in documents for entry in document["benchmarks"]]
    return {"context": documents[0]["context"], "benchmarks": rows}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, paths in (("table", ["results"]), ("readme", ["results", "page"]),
                        ("chart", ["results", "out"]), ("compare", ["a", "b"])):
        command = commands.add_parser(name)
        for path in paths:
            command.add_argument(path)
        if name in ("table", "chart"):
            command.add_argument("--all", action="store_true")
    command = commands.add_parser("merge")
    command.add_argument("out")
    command.add_argument("inputs", nargs="+")
    return parser.parse_args()


def main():
    args = parse()
    if args.command == "table":
        print(table(load(args.results), args.all))
    elif args.command == "readme":
        put_between_markers(args.page, table(load(args.results)))
    elif args.command == "chart":
        with open(args.out, "w", encoding="utf-8") as file:
            file.write(chart(load(args.results), args.all))
    elif args.command == "compare":
        print(compare(load(args.a), load(args.b)))
    else:
        merged = merge([load(path) for path in args.inputs])
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(merged, file, indent=1)


if __name__ == "__main__":
    main()
