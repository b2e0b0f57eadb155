#!/bin/bash
# quick.sh <bench> <report check>: measures a little of everything and checks that the report has every row.
set -euo pipefail
report=$(mktemp)
names=$(mktemp)
trap 'rm -f "$report" "$names"' EXIT
"$1" core --quick --json "$report"
"$1" --list >"$names"
"$2" "$report" "$names"
