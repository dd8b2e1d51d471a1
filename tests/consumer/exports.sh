#!/bin/sh
# exports.sh NM LIST LIBRARY: the shared library exports what the list says, no more and no less;
# every function of the namespace has one in C (those of formats excepted); and nothing is shared
# with other copies of the library in a process (type u, STB_GNU_UNIQUE).
#
# After a change of the API: exports.sh NM LIST LIBRARY --update
set -eu
export LC_ALL=C
symbols=$("$1" --dynamic --defined-only --demangle "$3" | sed 's/^[0-9a-f]* *//')
names=$(echo "$symbols" | sed 's/^. //' | sort -u)
if [ "${4-}" = --update ]; then
  echo "$names" > "$2"
fi
echo "$names" | diff "$2" - || { echo "$3: exports differ (< $2)"; exit 1; }
! echo "$symbols" | grep '^u'

missing=0
for name in $(echo "$names" | sed -nE 's/^ddtree::v0::([a-z_:]+)\(.*/\1/p' | grep -v '^formats::'); do
  case $name in
    name) c='ddtree_(errc|operation)_name' ;;
    *) c=ddtree_$(echo "$name" | sed 's/::/_/') ;;
  esac
  echo "$names" | grep -qxE "$c" || { echo "no function in C for $name"; missing=1; }
done
exit "$missing"
