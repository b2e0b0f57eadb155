#!/usr/bin/env bash
# A program with one mistake must not compile. The first error must be the sentence that explains the mistake, with every
# compiler that is installed.
# usage: negative.sh FILE INCLUDE_FOLDER COMPILER...
set -euo pipefail
file=$1 include=$2
shift 2
expected=$(sed -n '1s,^// expect: ,,p' "$file")
[[ -n $expected ]] || { echo "$file:1: the first line must be: // expect: SENTENCE"; exit 1; }
tried=0
for compiler in "$@"; do
  command -v "$compiler" >/dev/null || continue
  tried=$((tried + 1))
  if output=$("$compiler" -std=c++20 -fsyntax-only -fmax-errors=1 -I "$include" "$file" 2>&1); then
    echo "$compiler: $file compiles, though it must not"
    exit 1
  fi
  first=$(grep -m 1 -E '\berror:' <<<"$output" || true)
  if [[ $first != *"$expected"* ]]; then
    printf '%s: %s\n  the first error is: %s\n  it should say:     %s\n' "$compiler" "$file" "$first" "$expected"
    exit 1
  fi
  echo "$compiler: $first"
done
((tried > 0)) || { echo "none of these compilers is here: $*"; exit 1; }
