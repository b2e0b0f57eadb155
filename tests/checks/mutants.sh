#!/usr/bin/env bash
# A planted bug must fit the present code: each patch applies, changes one unit, and has a row in
# tests/simulation/mutants/README.md that says when the simulator finds it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder=tests/simulation/mutants
count=0
for patch in "$folder"/*.patch; do
  [[ -e $patch ]] || continue
  count=$((count + 1))
  why=$(git apply --check "$patch" 2>&1) || offence "$patch:1: does not apply: ${why%%$'\n'*}"
  [[ $(grep -c '^+++ ' "$patch") == 1 ]] || offence "$patch:1: a mutant is a mistake in one unit"
  name=$(basename "$patch" .patch)
  grep -qF "\`$name\`" tests/simulation/mutants/README.md || offence "$patch:1: mutants/README.md does not say when it is found"
done
finish "$count mutants"
