#!/usr/bin/env bash
# Proves that the chaos program notices errors. Each canary is a load with an error made on purpose, after which the
# program must end with code 1 and name the error.
set -u
chaos=$1
for canary in lost wrong hung quiet; do
  output=$("$chaos" --minutes 0.02 --seed 1 --nodes 3 --only worker_killed --canary "$canary" --bound 3 2>&1)
  code=$?
  expected=$canary
  [[ $canary != quiet ]] || expected='too little load'
  if [[ $code != 1 ]] || ! grep -q "^BAD .*$expected" <<<"$output"; then
    printf '%s\ncanary %s was not noticed (exit code %s)\n' "$output" "$canary" "$code"
    exit 1
  fi
  echo "canary $canary: noticed"
done
