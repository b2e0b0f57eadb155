#!/usr/bin/env bash
# The units of the agent below Node depend on each other without a circle. A part, which is a class with a `struct Below` of
# the parts below it, has at most 15 members, and no base class but interfaces: of other parts (`Part::Out`), Outgoing and ControlPort.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

folder=runtime/agent most=15
pairs=$(mktemp)
trap 'rm -f "$pairs"' EXIT

count=0
while read -r header; do
  count=$((count + 1))
  name=$(basename "$header" .hpp)
  files=("$header")
  for unit in "${header%.hpp}".cpp "${header%.hpp}"_*.cpp; do  # x_y.cpp belongs to x.hpp where there is no x_y.hpp
    if [[ -f $unit && ( $unit == "${header%.hpp}.cpp" || ! -f ${unit%.cpp}.hpp ) ]]; then files+=("$unit"); fi
  done
  grep -hoE "^#include \"troupe/$folder/[a-z_0-9]+\.hpp\"" "${files[@]}" | sed -E 's%.*/([a-z_0-9]+)\.hpp"%\1%' | sort -u |
    while read -r other; do [[ $other == "$name" ]] || echo "$name $other"; done >>"$pairs" || true

  grep -q '^  struct Below {' "$header" || continue
  members=$(grep -cE '^  [A-Za-z_:].*[ >&*][a-z][a-z_0-9]*_( = .*|\{.*|)?;( *//.*)?$' "$header" || true)
  ((members <= most)) || offence "$header:1: a part with $members members: $most are the most"
  while IFS=: read -r line text; do
    for base in $(sed -E 's/^class [A-Za-z]+ (final )?: //; s/\{.*//; s/,/ /g; s/\b(public|private)\b//g' <<<"$text"); do
      [[ $base == *::* || $base == Outgoing || $base == ControlPort ]] || offence "$header:$line: the base class $base is no interface of a part"
    done
  done < <(grep -nE '^class [A-Za-z]+ (final )?:' "$header" || true)
done < <(find "$folder" -maxdepth 1 -name '*.hpp' ! -name node.hpp 2>/dev/null | sort)

circle=$(tsort "$pairs" 2>&1 >/dev/null | sed -n 's/^tsort: \([a-z_0-9]*\)$/\1/p' | tr '\n' ' ' || true)
[[ -z $circle ]] || offence "$folder/${circle%% *}.hpp:1: a circle of units: $circle"
finish "$count headers of the agent"
