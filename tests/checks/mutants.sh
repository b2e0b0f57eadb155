#!/usr/bin/env bash
# A planted bug must fit the present code: each patch applies, changes one unit, and its first line names the seed at which
# the simulator finds it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder=tests/simulation/mutants
count=0
for patch in "$folder"/*.patch; do
  [[ -e $patch ]] || continue
  count=$((count + 1))
  why=$(git apply --check "$patch" 2>&1) || offence "$patch:1: does not apply: ${why%%$'\n'*}"
  [[ $(grep -c '^+++ ' "$patch") == 1 ]] || offence "$patch:1: a mutant is a mistake in one unit"
  head -n 1 "$patch" | grep -qE '^Seed: ([0-9]+|rare)$' ||
    offence "$patch:1: the first line is no 'Seed: N'; ./dev simulate --mutants --record NAME writes it"
done
finish "$count mutants"
