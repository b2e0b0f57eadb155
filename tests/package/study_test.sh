#!/usr/bin/env bash
# Tests the example of a study: it is killed, goes on with the same command, and returns its result once it is complete.
# usage: study_test.sh PROGRAM
set -euo pipefail
program=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { printf '%s\n' "$*" >&2; exit 1; }
kill_when() {   # kill_when BYTES: kills the driver once the store's log has grown so far
  "$program" "$root/study" 20 >"$root/killed" 2>&1 &
  local driver=$!
  for _ in {1..500}; do
    kill -0 "$driver" 2>/dev/null || break
    (($(cat "$root"/study/store/*.log 2>/dev/null | wc -c) >= $1)) && break
    sleep 0.02
  done
  kill -9 "$driver" 2>/dev/null || fail "the program ended before the kill: $(cat "$root/killed")"
  wait "$driver" 2>/dev/null || true
}

kill_when 20000
result=$(timeout 60 "$program" "$root/study" 20 2>"$root/second") || fail "the second life failed: $(cat "$root/second")"
grep -q '^accuracy 0\.[5-9]' <<<"$(tail -1 <<<"$result")" || fail "the result is: $result"
third=$(timeout 10 "$program" "$root/study" 20 2>"$root/third")
grep -q 'is complete since' "$root/third" || fail "the third life did not return the result: $(cat "$root/third")"
[[ $(tail -1 <<<"$third") == "$(tail -1 <<<"$result")" ]] || fail "results differ: $result and $third"
[[ -s $root/study/report.html ]] || fail "there is no page"
