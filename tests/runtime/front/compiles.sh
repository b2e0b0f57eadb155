#!/usr/bin/env bash
# Compiles a user's program with every compiler that is installed; it must give no warning.
# usage: compiles.sh FILE INCLUDE_FOLDER COMPILER...
set -euo pipefail
file=$1 include=$2
shift 2
tried=0
for compiler in "$@"; do
  command -v "$compiler" >/dev/null || continue
  tried=$((tried + 1))
  "$compiler" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I "$include" "$file"
done
((tried > 0)) || { echo "none of these compilers is here: $*"; exit 1; }
