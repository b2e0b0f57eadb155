#!/usr/bin/env bash
# A chaos program that is killed alone takes its clusters with it.
set -u
chaos=$1
setsid "$chaos" --minutes 1 --seed 1 --nodes 3 --only worker_killed >/dev/null 2>&1 &
session=$!

# Pids of its session that live: whatever it has started, and what that has started.
alive() {
  local stat pid rest
  for stat in /proc/[0-9]*/stat; do
    { read -r pid rest <"$stat"; } 2>/dev/null || continue
    read -ra rest <<<"${rest##*) }"
    [[ ${rest[3]} != "$session" || ${rest[0]} == [ZX] ]] || echo "$pid"
  done
}

# Until alive names so many, at most so many seconds.
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
