#!/bin/sh
# symbols.sh NM OBJECT_LIST: the library's objects call nothing that ends the process, prints,
# allocates, throws or reads the environment.
#
# One object is excepted: parallel.cpp starts threads, and std::thread allocates and may throw.
set -eu
nm=$1
list=$2

ends='abort|_?exit|_Exit|quick_exit|at_quick_exit|atexit|__assert_fail'
prints='_*v?(f|d|s|sn|as|w|fw|sw)?printf(_chk)?|puts|_?putc|putchar|fput[sc]|fwrite|write|perror'
streams='std(in|out|err)|_ZSt[34](cin|cout|cerr|clog)|_ZNK?St8ios_base.*|_ZNK?S[oid].*|_ZStls.*'
allocates='[mc]alloc|realloc|free|strdup|(posix_)?memalign|aligned_alloc|_Zn[wa].*|_Zd[la]Pv.*'
throws='__cxa_(throw.*|rethrow|allocate_exception|bad_cast)|_ZSt[0-9]+__throw_.*'
reads='(secure_)?getenv'
forbidden="^($ends|$prints|$streams|$allocates|$throws|$reads)(@.*)?\$"

objects=0
found=0
while read -r object; do
  [ -n "$object" ] || continue
  objects=$((objects + 1))
  case $object in */support/parallel.cpp.o) continue ;; esac
  symbols=$("$nm" --undefined-only --format=posix "$object")
  if names=$(echo "$symbols" | cut -d ' ' -f 1 | grep -E "$forbidden"); then
    echo "$object:" $names
    found=1
  fi
done < "$list"

[ "$objects" -gt 0 ] || { echo "no object in $list"; exit 1; }
echo "$objects objects"
exit "$found"
