#!/usr/bin/env bash
# Pages: a README has at most 120 lines, the root's 200. Links between pages lead to files that exist. An invariant's id
# is defined once, and its prefix names its room with two letters or more.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

pages=$(find . -name '*.md' -not -path './build*' -not -path './.*/*' -printf '%P\n' | sort)
count=0
ids=$(mktemp)
trap 'rm -f "$ids"' EXIT
for page in $pages; do
  count=$((count + 1))
  limit=120
  [[ $page != README.md ]] || limit=200
  lines=$(wc -l <"$page")
  [[ $(basename "$page") != README.md ]] || ((lines <= limit)) ||
    offence "$page:$limit: has $lines lines; a README has at most $limit"
  while IFS=: read -r line link; do
    [[ -e $(dirname "$page")/$link ]] || offence "$page:$line: $link is not there"
  done < <(grep -noP '\]\(\K[^)#:]+(?=[)#])' "$page" || true)
  while IFS=: read -r line id; do
    id=${id//[*- ]/}
    ! grep -q "^$id " "$ids" || offence "$page:$line: the invariant $id is defined a second time: $(sed -n "s/^$id //p" "$ids")"
    printf '%s %s:%s\n' "$id" "$page" "$line" >>"$ids"
    [[ $id != ?-* ]] || offence "$page:$line: $id says no room: give it a prefix such as TRAIN-1"
  done < <(grep -noE '^- (\*\*)?[A-Z]+-[0-9]+(\*\*|:| )' "$page" | sed -E 's/:- /:/; s/\*\*//g; s/[: ]$//' || true)
done
# Headers list invariants, and comments cite them: their ids need such a prefix too.
while IFS=: read -r file line id; do
  offence "$file:$line: ${id//[^A-Z0-9-]/} says no room: give it a prefix such as TRAIN-1"
done < <(sources hpp cpp cu cuh | tr '\n' '\0' |
  xargs -0 -r grep -noE '//.*[ (][A-Z]-[0-9]+([ ,:;.)]|$)' | sed -E 's/:\/\/.*[ (]([A-Z]-[0-9]+)[ ,:;.)]?$/:\1/' |
  grep -vE ':N-1$' || true)
finish "$count pages"
