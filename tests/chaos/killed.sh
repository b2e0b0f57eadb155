#!/usr/bin/env bash
# Proves that the clusters of a chaos program end when the program is killed and nothing else.
set -u
chaos=$1
setsid "$chaos" --minutes 1 --seed 1 --nodes 3 --only worker_killed >/dev/null 2>&1 &
session=$!

# Prints the pids of living processes in its session: its children and all their descendants.
alive() {
  local stat pid rest
  for stat in /proc/[0-9]*/stat; do
    { read -r pid rest <"$stat"; } 2>/dev/null || continue
    read -ra rest <<<"${rest##*) }"
    [[ ${rest[3]} != "$session" || ${rest[0]} == [ZX] ]] || echo "$pid"
  done
}

# until_alive OPERATOR NUMBER SECONDS: waits until the number of living processes compares so, for at most SECONDS.
until_alive() {
  local end=$((SECONDS + $3))
  until (($(alive | wc -l) $1 $2)); do
    ((SECONDS < end)) || return 1
    sleep 0.05
  done
}

until_alive '>=' 12 60 || { echo "no cluster came up"; kill -9 $(alive) 2>/dev/null; exit 1; }
kill -9 "$session"
if ! until_alive '==' 0 10; then
  echo "the chaos program was killed, and these outlive it:"
  ps -o pid,ppid,args -p "$(alive | paste -sd,)"
  kill -9 $(alive) 2>/dev/null
  exit 1
fi
