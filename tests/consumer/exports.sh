#!/bin/sh
# exports.sh NM LIBRARY: the shared library exports the namespace ddtree and ddtree_ functions only.
set -eu
names=$("$1" --dynamic --defined-only --format=posix "$2" | cut -d ' ' -f 1)
[ -n "$names" ] || { echo "no exported symbol in $2"; exit 1; }
! echo "$names" | grep -Ev '^(_ZNK?6ddtree|ddtree_)'
