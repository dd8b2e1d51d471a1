#!/bin/sh
# all_called.sh HEADER SOURCE: the source calls every function that the header declares.
set -eu
names=$(tr '\n' ' ' < "$1" | grep -oE 'DDTREE_API [^();]*\(' | grep -oE 'ddtree_[a-z_]+\(')
[ -n "$names" ] || { echo "no function in $1"; exit 1; }
missing=0
for name in $names; do
  grep -qF "$name" "$2" || { echo "not called: $name"; missing=1; }
done
exit "$missing"
