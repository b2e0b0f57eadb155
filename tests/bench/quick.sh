#!/bin/bash
# quick.sh <bench> <report check>: measures a few calls of every row, and proves that the report has every row.
# It also proves that the curves end in a picture.
set -euo pipefail
report=$(mktemp)
names=$(mktemp)
trap 'rm -f "$report" "$names"' EXIT
for suite in core objects control train tune operate; do  # control takes remote along
  "$1" "$suite" --quick --json "$report"
  "$1" "$suite" --list >"$names"
  "$2" "$report" "$names"
done
"$1" --curves "$report" --quick >/dev/null
grep -q "</svg>" "$report"
