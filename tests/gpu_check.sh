#!/bin/sh
# Everything that needs a GPU, in one command: tests/gpu_check.sh [BUILD_DIRECTORY]
#
# Builds the preset `dev` where no build directory is given, runs the tests of every CUDA variant,
# then runs them under compute-sanitizer where it is installed. SANITIZERS chooses its tools
# (default: memcheck), TESTS the test programs. Ends with one line of counts.
set -u
cd "$(dirname "$0")/.." || exit
build=${1:-build/dev}
tests=${TESTS:-accept accept_draws accept_sampled accept_shard build compact cuda_contract cuda_equality cuda_rules \
  expand expand_shard formats_capture formats_flashinfer formats_llama_cpp formats_sglang \
  formats_tensorrt_llm formats_transformers formats_vllm formats_xgrammar link_tree mask round}
passed=0 failed=0 skipped=0

if [ $# -eq 0 ]; then
  cmake --preset dev && cmake --build --preset dev || exit
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || exit

# Tests look at arrays right after a call, so launches wait.
export DDTREE_TEST_BACKEND=cuda CUDA_LAUNCH_BLOCKING=1
run() {  # name command...
  name=$1
  shift
  log=$(mktemp)
  if "$@" > "$log" 2>&1; then
    passed=$((passed + 1))
    echo "passed   $name: $(grep -E 'assertions|ERROR SUMMARY' "$log" | tr '\n' ' ')"
  elif [ $? -eq 4 ]; then
    skipped=$((skipped + 1))
    echo "skipped  $name: $(tail -n 1 "$log")"
  else
    failed=$((failed + 1))
    echo "FAILED   $name"
    tail -n 40 "$log"
  fi
  rm -f "$log"
}

for test in $tests; do
  run "$test" timeout 300 "$build/tests/test_$test"
done
if command -v compute-sanitizer > /dev/null; then
  for tool in ${SANITIZERS:-memcheck}; do
    for test in $tests; do
      # Too much work for a sanitizer, on kernels that the others reach too.
      case $test in accept_draws | cuda_equality) continue ;; esac
      run "$tool $test" timeout 600 compute-sanitizer --tool "$tool" --error-exitcode 99 \
        "$build/tests/test_$test"
    done
  done
else
  echo "compute-sanitizer is not installed: its runs are left out"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$skipped" -eq 0 ]
