#!/bin/sh
# list_kernels.sh ARCHIVE: the kernels of the library, a demangled name a line. On the host each has
# a function of its name, which launches it.
nm --demangle --defined-only "$1" |
  sed -n 's/^[0-9a-f]* [A-Za-z] \(.*_kernel[<(].*)\)$/\1/p' | grep -v __device_stub | LC_ALL=C sort -u
