#!/usr/bin/env bash
# Tests the example that a launcher starts. One, two and three ranks learn the same, and the ranks of a run have equal
# weights.
# usage: torchrun_test.sh PROGRAM
set -euo pipefail
program=$1
launcher=$(dirname "${BASH_SOURCE[0]}")/torchrun.sh
fail() { printf '%s\n' "$*" >&2; exit 1; }

for world in 1 2 3; do
  out=$(timeout 60 "$launcher" "$world" "$program") || fail "$world ranks: the program failed"
  printf '%s\n' "$out"
  [[ $(grep -c "^rank [0-9]* of $world: weights" <<<"$out") == "$world" ]] || fail "not every rank of $world came to the end"
  [[ $(sed -n 's/^rank .*weights //p' <<<"$out" | sort -u | wc -l) == 1 ]] || fail "the weights of $world ranks differ"
  losses=$(sed -n 's/^step [0-9]* loss //p' <<<"$out" | xargs)
  alone=${alone:-$losses}
  awk -v a="$alone" -v b="$losses" 'BEGIN {
    n = split(a, x, " ")
    if (n != 4 || split(b, y, " ") != n || !(y[n] < y[1] / 2)) exit 1
    for (i = 1; i <= n; ++i) if ((x[i] - y[i]) ^ 2 > 0.001 ^ 2) exit 1
  }' || fail "$world ranks: losses $losses, and one rank: $alone"
done

code=0
"$launcher" 2 bash -c '[[ $RANK == 0 ]] && exec sleep 60; exit 5' || code=$?
[[ $code == 5 ]] || fail "the launcher gave $code instead of the code of the rank that failed"
