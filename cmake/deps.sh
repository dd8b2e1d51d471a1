#!/bin/sh
# Installs what is missing of cmake/packages.txt on Debian and its like. Needs root or sudo only
# where a package is missing, and is silent where none is.
set -eu
packages=$(sed 's/#.*//' "$(dirname "$0")/packages.txt")

if ! command -v apt-get > /dev/null; then
  echo "deps.sh: no apt-get here. Install these yourself (Debian's names):" $packages >&2
  exit 1
fi

missing=
for package in $packages; do
  case $(dpkg-query -W -f '${Status}' "$package" 2> /dev/null) in
    *' installed') ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

install="apt-get install --yes --no-install-recommends$missing"
give_up() {
  echo "deps.sh: $1. As root, run: apt-get update && $install" >&2
  exit 1
}

as_root=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || give_up "packages are missing, and there is no sudo"
  as_root=sudo
fi
run() { $as_root env DEBIAN_FRONTEND=noninteractive "$@" < /dev/null; }

echo "deps.sh: $install"
# A fresh system has no package lists yet; old lists name files that are gone.
if ! apt-get --simulate install $missing > /dev/null 2>&1; then
  run apt-get update || give_up "could not update the package lists"
fi
run $install || { run apt-get update && run $install; } || give_up "could not install"
