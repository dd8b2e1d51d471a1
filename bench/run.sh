#!/bin/sh
# Runs every benchmark into one file: bench/run.sh [--torch] [BUILD_DIRECTORY [OUT.json]]
#
# Builds the preset `dev` where no build directory is given. OUT.json is bench/results/latest.json
# where it is not. --torch adds the rows of peers_torch.py; those of CUB are in a build with
# -DDDTREE_BENCH_PEERS=ON. FILTER is a regular expression that chooses rows of ddtree_bench.
set -eu
here=$(dirname "$0")
with_torch=no
if [ "${1:-}" = --torch ]; then
  with_torch=yes
  shift
fi
build=${1:-$here/../build/dev}
out=${2:-$here/results/latest.json}

if [ $# -eq 0 ]; then
  (cd "$here/.." && cmake --preset dev && cmake --build --preset dev --target ddtree_bench)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/bench/ddtree_bench" --benchmark_filter="${FILTER:-.}" \
  --benchmark_out="$work/ddtree.json" --benchmark_out_format=json
if [ $with_torch = yes ]; then
  python3 "$here/peers_torch.py" "$work/torch.json"
fi
mkdir -p "$(dirname "$out")"
python3 "$here/report.py" merge "$out" "$work"/*.json
python3 "$here/report.py" table "$out"
