#!/usr/bin/env bash
# The units below agent::Node and client::ClientEngine depend on each other without a circle. A part has at most 15 members,
# and no base class but interfaces: those of other parts (`Part::Out`), Outgoing and ControlPort. A part of the agent is a
# class with a `struct Below` of the parts below it; those of the engine are named here.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

most=15
engine_parts=' agent_link call_encoder call_sender call_sites callers calls engine_gate peers plain_calls questions recovery reports resumes store_asks store_use value_bytes values wait_reasons waits work_queue worker_lease '
pairs=$(mktemp)
trap 'rm -f "$pairs"' EXIT

count=0
while read -r header; do
  count=$((count + 1))
  name=$(basename "$header" .hpp) folder=$(dirname "$header")
  files=("$header")
  for unit in "${header%.hpp}".cpp "${header%.hpp}"_*.cpp; do  # x_y.cpp belongs to x.hpp where there is no x_y.hpp
    if [[ -f $unit && ( $unit == "${header%.hpp}.cpp" || ! -f ${unit%.cpp}.hpp ) ]]; then files+=("$unit"); fi
  done
  grep -hoE "^#include \"troupe/$folder/[a-z_0-9]+\.hpp\"" "${files[@]}" | sed -E 's%.*/([a-z_0-9]+)\.hpp"%\1%' | sort -u |
    while read -r other; do [[ $other == "$name" ]] || echo "$folder/$name $folder/$other"; done >>"$pairs" || true

  grep -q '^  struct Below {' "$header" || [[ $folder == runtime/client && $engine_parts == *" $name "* ]] || continue
  members=$(grep -cE '^  [A-Za-z_:].*[ >&*][a-z][a-z_0-9]*_( = .*|\{.*|)?;( *//.*)?$' "$header" || true)
  ((members <= most)) || offence "$header:1: a part with $members members: $most are the most"
  while IFS=: read -r line text; do
    for base in $(sed -E 's/^class [A-Za-z]+ (final )?: //; s/\{.*//; s/,/ /g; s/\b(public|private)\b//g' <<<"$text"); do
      [[ $base == *::* || $base == Outgoing || $base == ControlPort ]] || offence "$header:$line: the base class $base is no interface of a part"
    done
  done < <(grep -nE '^class [A-Za-z]+ (final )?:' "$header" || true)
done < <(find runtime/agent runtime/client -maxdepth 1 -name '*.hpp' ! -name node.hpp ! -name engine.hpp 2>/dev/null | sort)

sed -i -E 's%runtime/client/in_place( |$)%runtime/client/tasks\1%g' "$pairs"  # rules of TaskManager that need a Task: one unit with it
circle=$(tsort "$pairs" 2>&1 >/dev/null | sed -n 's%^tsort: \([a-z_0-9/]*\)$%\1%p' | tr '\n' ' ' || true)
[[ -z $circle ]] || offence "${circle%% *}.hpp:1: a circle of units: $circle"
finish "$count headers of the agent and the client"
