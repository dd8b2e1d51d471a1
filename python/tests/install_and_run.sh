#!/bin/sh
# install_and_run.sh BUILD_DIR: pip install into a clean environment, then pytest. Without a GPU
# build, which takes minutes and is tested by its own tests. Exits with 4, which ctest reports as
# skipped, where packages cannot be had.
set -eu
sources=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
skip() {
  echo "skipped: $1"
  exit 4
}

rm -rf "$build/venv"
python3 -m venv "$build/venv" || skip "no python3 with venv"
PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_DISABLE_PIP_VERSION_CHECK
pip="$build/venv/bin/python -m pip --quiet install"
$pip scikit-build-core numpy pytest || skip "no package index"
$pip --no-build-isolation "$sources" -C build-dir="$build/wheel" -C cmake.define.DDTREE_CUDA=OFF
cd "$sources/python/tests"  # from where the sources of the package are not found
"$build/venv/bin/python" -B -m pytest -q -p no:cacheprovider
