#!/bin/sh
# check_images.sh ARCHIVE NVCC ARCHITECTURE...: every operation's kernels have an image for every
# architecture that was asked for (80-real, 120-virtual, 90 = both), and ptxas assembles the PTX for
# devices that are newer than it: that of 80 for sm_110, that of 120 for sm_121.
#
# Needs cuobjdump: CUOBJDUMP, the toolkit's, or the one from PyPI, which is put below the current
# directory. Exits with 4 where there is none.
set -eu
archive=$(readlink -f "$1")
nvcc=$2
shift 2
toolkit=$(dirname "$nvcc")

find_cuobjdump() {
  for candidate in "${CUOBJDUMP:-}" "$toolkit/cuobjdump" "$(command -v cuobjdump || true)"; do
    if [ -x "$candidate" ]; then
      readlink -f "$candidate"
      return
    fi
  done
  venv=$PWD/cuobjdump
  if [ ! -d "$venv" ]; then
    python3 -m venv "$venv" &&
      "$venv/bin/pip" install --retries 1 'nvidia-cuda-cuobjdump>=13,<14' || rm -rf "$venv"
  fi > /dev/null 2>&1
  find "$venv" -name cuobjdump -path '*/bin/*' -type f 2> /dev/null | head -n 1
}
cuobjdump=$(find_cuobjdump)
if [ -z "$cuobjdump" ]; then
  echo "no cuobjdump in the toolkit, in PATH or from PyPI: images not checked"
  exit 4
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
miss() {
  echo "missing: $1"
  failed=1
}

# One line per kernel and architecture: "90 _ZN6ddtree..."; the same for PTX. Kernels are marked
# ENTRY, by older tools STO_ENTRY.
"$cuobjdump" --dump-elf-symbols "$archive" | awk '
  /^Fatbin/ { is_elf = $2 == "elf" }
  /^arch = sm_/ { sub(/.*sm_/, ""); arch = $0 }
  /ENTRY/ && is_elf { print arch, $NF }' > "$work/elf"
(cd "$work" && "$cuobjdump" --extract-ptx all "$archive" > /dev/null)
for file in "$work"/*.ptx; do
  [ -e "$file" ] || continue
  arch=${file##*.sm_}
  sed -n "s/.*\.entry \([A-Za-z0-9_]*\).*/${arch%.ptx} \1/p" "$file"
done > "$work/ptx"

# What runs each operation, as the kernels are named.
kernels='expand stream cluster read_again expand_shard expand_merge build_tree link_tree
  write_bits write_bytes write_values write_bit_block write_byte_block write_value_block
  write_verify_inputs accept_tokens accept_lazy accept_rows accept_walk accept_shard accept_merge
  move_rows permute_entries compact_rows compact_state advance'

# Every kernel that some image has, and every one that an operation needs.
check() {  # elf|ptx architecture
  for kernel in $kernels; do
    grep -q "^$2 .*[0-9]${kernel}_kernel" "$work/$1" || miss "${kernel}_kernel in $1 of $2"
  done
  cut -d ' ' -f 2 "$work/elf" "$work/ptx" | sort -u > "$work/all"
  sed -n "s/^$2 //p" "$work/$1" | sort -u > "$work/here"
  for name in $(comm -23 "$work/all" "$work/here" | head -n 5); do miss "$name in $1 of $2"; done
  echo "$1 of $2: $(wc -l < "$work/here") kernels"
}

for architecture in "$@"; do
  number=${architecture%%-*}
  case $architecture in *-virtual) ;; *) check elf "$number" ;; esac
  case $architecture in *-real) ;; *) check ptx "$number" ;; esac
done

assemble() {  # PTX architecture, device
  count=0
  for file in "$work"/*.sm_"$1".ptx; do
    [ -e "$file" ] || return 0
    "$toolkit/ptxas" -arch="sm_$2" "$file" -o /dev/null || miss "sm_$2 from PTX of $1: $file"
    count=$((count + 1))
  done
  echo "PTX of $1 for sm_$2: $count files"
}
assemble 80 110
assemble 120 121
exit "$failed"
