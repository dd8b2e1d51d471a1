#!/bin/sh
# pkg_config.sh COMPILER PREFIX SOURCE PROGRAM [--static]: no CMake, only the installed ddtree.pc.
set -eu
export PKG_CONFIG_PATH="$2/lib/pkgconfig" LD_LIBRARY_PATH="$2/lib"
# The flags are words on purpose.
"$1" -std=c++20 "$3" -o "$4" $(pkg-config ${5-} --cflags --libs ddtree)
"$4"
