#!/bin/bash
# guard.sh <hot_paths> <recorded.txt> [--record]: counts the instructions of the hot paths with callgrind and compares
# them with the counts recorded for this compiler. Exit code: 0 no path grew by more than 5%, 1 one did, 77 there is no
# valgrind or no recorded count.
# --record prints the lines for recorded.txt instead of comparing.
set -euo pipefail
program=$1
recorded=$2
skip() {
  echo "skipped: $1"
  exit 77
}
command -v valgrind >/dev/null || skip 'valgrind is not installed'
build=$("$program" --build)
[[ -n $build ]] || skip 'this build is not optimized, or has a sanitizer in it'
if [[ ${3:-} != --record ]]; then
  grep -q "^$build " "$recorded" || skip "nothing is recorded for $build; see tests/bench/guard/guard.sh --record"
fi
chunk=$("$program" --chunk)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# One dump of counts after each call of a path. Code that runs between paths is not counted.
dumps=()
for path in $("$program" --paths); do dumps+=("--dump-after=$path"); done
valgrind --tool=callgrind --collect-atstart=no --toggle-collect='hot_*' "${dumps[@]}" \
  --callgrind-out-file="$folder/out" "$program" >"$folder/log" 2>&1 || {
  cat "$folder/log"
  exit 1
}
# "desc: Trigger: … 'hot_x'" names the path, "totals:" has its instructions. The median of a path counts.
for dump in "$folder"/out.*; do
  awk '/^desc: Trigger:/ { match($0, /hot_[a-z_]+/); name = substr($0, RSTART, RLENGTH) }
       /^(summary|totals):/ { count = $2 }
       END { if (name != "" && count > 0) print name, count }' "$dump"
done | sort -k1,1 -k2,2n | awk -v chunk="$chunk" '
  function flush() { if (n) printf "%s %.1f\n", name, v[int((n + 1) / 2)] / chunk; n = 0 }
  $1 != name { flush(); name = $1 }
  { v[++n] = $2 }
  END { flush() }' >"$folder/counted"
if [[ ${3:-} == --record ]]; then
  sed "s/^/$build /" "$folder/counted"
  exit 0
fi
awk -v build="$build" '
  FNR == NR { if ($1 == build) { want[$2] = $3; ++wanted }; next }
  $1 in want {
    change = 100 * ($2 / want[$1] - 1)
    verdict = change > 5 ? "GREW" : change < -5 ? "shrank: record it" : "as recorded"
    if (change > 5) bad = 1
    printf "%-18s %8.1f instructions a message, %8.1f recorded, %+5.1f%%  %s\n", $1, $2, want[$1], change, verdict
    ++seen
  }
  END {
    if (seen != wanted) { print "some paths were not counted"; bad = 1 }
    exit bad
  }' "$recorded" "$folder/counted"
