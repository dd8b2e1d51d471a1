#!/bin/sh
# Everything that needs a GPU, in one command; see usage() below.
#
# The programs, and the environment of each, are those that CMake wrote to
# BUILD/tests/gpu_programs.txt: one "NAME PROGRAM [VARIABLE=VALUE]..." a line.
set -u

usage() {
  cat << 'END'
usage: tests/gpu_check.sh [--only STAGE[,STAGE]...]... [--build-dir DIR] [-j N] [-t SECONDS]

Builds for this machine's GPU, runs every test of the CUDA backend, then the test cases tagged
[small] under compute-sanitizer, and prints a table. Fails if a program failed or was skipped.

  --only STAGE     build, tests, memcheck, racecheck, initcheck or synccheck; all of them without it
  --build-dir DIR  an existing build, which is not configured anew; default: build/gpu, made here.
                   Without stage `build` the programs in DIR/tests are enough.
  -j N             programs that run at once; default: a program per core, 16 at most
  -t SECONDS       what a program may take; default 470
END
}

refuse() {
  echo "gpu_check.sh: $1" >&2
  usage >&2
  exit 2
}

# Runs one program and leaves "RESULT STAGE NAME CASES SKIPPED SECONDS" in LOGS.
run_one() {  # logs limit stage build name program environment...
  logs=$1 limit=$2 stage=$3 build=$4 name=$5 program=$4/tests/$6
  shift 6
  log=$logs/$stage.$name.log
  start=$(date +%s)
  code=0
  echo "FAILED $stage $name 0 0 0" > "$logs/$stage.$name.row"  # should this script be stopped
  if [ "$stage" = tests ]; then
    env "$@" timeout "$limit" "$program" > "$log" 2>&1 || code=$?
  elif echo " $* " | grep -q ' DDTREE_TEST_SANITIZE=0 ' ||
    env "$@" "$program" --list-tests '[small]' 2>&1 | grep -q '^0 matching'; then
    echo "none $stage $name 0 0 0" > "$logs/$stage.$name.row"
    return
  else
    env "$@" "DDTREE_KERNEL_LOG=$logs/kernels.$stage" timeout "$limit" compute-sanitizer --tool "$stage" --error-exitcode 99 \
      "$program" '[small]' > "$log" 2>&1 || code=$?
  fi
  cases=$(sed -n 's/^All tests passed.* in \([0-9]*\) test cases\{0,1\}).*/\1/p
    s/^test cases: *\([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  skips=$(sed -n 's/^\([0-9]*\) of [0-9]* test cases skipped$/\1/p
    s/^no CUDA device: \([0-9]*\) test cases skipped$/\1/p' "$log" | tail -n 1)
  case $code in 0) result=passed ;; 4) result=skipped ;; *) result=FAILED ;; esac
  echo "$result $stage $name ${cases:-0} ${skips:-0} $(($(date +%s) - start))" \
    > "$logs/$stage.$name.row"
}

# How xargs comes back to this script, below.
if [ "${1:-}" = --run-one ]; then
  shift
  run_one "$@"
  exit 0
fi

root=$(cd "$(dirname "$0")/.." && pwd)
all='build tests memcheck racecheck initcheck synccheck'
stages='' build='' limit=470
jobs=$(nproc)
[ "$jobs" -le 16 ] || jobs=16
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage && exit ;;
    --only | --build-dir | -j | -t) [ $# -ge 2 ] || refuse "$1 needs a value" ;;
    *) refuse "unknown argument: $1" ;;
  esac
  case $1 in
    --only)
      for stage in $(echo "$2" | tr ',' ' '); do
        case " $all " in *" $stage "*) ;; *) refuse "unknown stage: $stage" ;; esac
      done
      stages="$stages $(echo "$2" | tr ',' ' ')"
      ;;
    --build-dir) build=$2 ;;
    -j) jobs=$2 ;;
    -t) limit=$2 ;;
  esac
  shift 2
done
case $jobs in '' | 0* | *[!0-9]*) refuse "-j needs a number from 1" ;; esac
case $limit in '' | 0* | *[!0-9]*) refuse "-t needs a number from 1" ;; esac
stages=${stages:-$all}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || exit

build_all() {
  if [ -z "$build" ]; then
    build=$root/build/gpu
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_CUDA_ARCHITECTURES="$capability-real" || return
  fi
  cmake --build "$build" --parallel "$(nproc)"
}

# The [small] cases have to reach every kernel of the library.
check_kernels() {
  [ -e "$build/tests/kernels.txt" ] || return
  result=passed
  touch "$logs/kernels.$stage"
  LC_ALL=C sort -u "$logs/kernels.$stage" | LC_ALL=C comm -13 - "$build/tests/kernels.txt" > "$logs/missing"
  if [ -s "$logs/missing" ]; then
    result=FAILED
    sed '1i kernels that no [small] case reaches:' "$logs/missing" > "$logs/$stage.every_kernel.log"
  fi
  echo "$result $stage (every_kernel) $(wc -l < "$build/tests/kernels.txt") 0 0" \
    > "$logs/$stage.every_kernel.row"
}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
for stage in $all; do
  case " $stages " in *" $stage "*) ;; *) continue ;; esac
  echo "== $stage"
  if [ "$stage" = build ]; then
    build_all || exit 1
    continue
  fi
  build=${build:-$root/build/gpu}
  programs=$build/tests/gpu_programs.txt
  if [ ! -s "$programs" ]; then
    echo "no $programs: build with CUDA and tests first" >&2
    exit 1
  fi
  if [ "$stage" != tests ] && ! command -v compute-sanitizer > /dev/null; then
    echo "FAILED $stage (compute-sanitizer:is:not:installed) 0 0 0" > "$logs/$stage.0.row"
    continue
  fi
  # To xargs a blank at a line's end means that the line goes on.
  sed 's/ *$//' "$programs" > "$logs/programs"
  # The cases that have to be alone are not [small].
  alone=DDTREE_TEST_ALONE
  [ "$stage" = tests ] || alone='^$'
  grep -v "$alone" "$logs/programs" |
    xargs -r -L 1 -P "$jobs" sh "$0" --run-one "$logs" "$limit" "$stage" "$build"
  grep "$alone" "$logs/programs" |
    xargs -r -L 1 sh "$0" --run-one "$logs" "$limit" "$stage" "$build"
  [ "$stage" = tests ] || check_kernels
  for row in "$logs/$stage".*.row; do
    case $(cat "$row") in FAILED*) echo "-- $row" && tail -n 40 "${row%row}log" ;; esac
  done
done

cat "$logs"/*.row 2> /dev/null | awk '
  BEGIN { format = "%-10s %-28s %-8s %6s %8s %8s\n"
          printf "\n" format, "stage", "program", "result", "cases", "skipped", "seconds" }
  { printf format, $2, $3, $1, $4, $5, $6; count[$1]++ }
  END { printf "%d passed, %d failed, %d skipped, %d without [small] cases\n",
          count["passed"], count["FAILED"], count["skipped"], count["none"]
        exit count["FAILED"] + count["skipped"] > 0 || (NR > 0 && count["passed"] == 0) }'
