#!/usr/bin/env bash
# The usage example at the head of each front-door header compiles. front_doors/NAME.cpp holds the code that the example
# assumes, with `// EXAMPLE troupe/…` in the example's place.
# usage: front_doors.sh COMPILER INCLUDE_FOLDER WORK_FOLDER [LAUNCHER]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
mkdir -p "$3"
include=$(realpath -s "$2") work=$(realpath -s "$3")

# example HEADER: prints the first code in the header's first comment, which is indented by four more spaces
example() { awk '/^#pragma/ || (code && /^\/\/\/ [^ ]/) { exit } /^\/\/\/     / { code = 1; print substr($0, 9) }' "$1"; }

declare -A doors=()
count=0
for frame in tests/checks/front_doors/*.cpp; do
  count=$((count + 1))
  header=$(sed -n 's#^ *// EXAMPLE troupe/##p' "$frame")
  if [[ ! -f $header ]]; then
    offence "$frame:1: its header '$header' is not there"
    continue
  fi
  code=$(example "$header")
  [[ -n $code ]] || { offence "$header:1: has no example in its first comment"; continue; }
  unit=$(basename "$frame")
  doors[$unit]=$header
  units[$unit]=$(sed -e '/\/\/ EXAMPLE /{r /dev/stdin' -e 'd}' "$frame" <<<"$code")
done
compile_units "$work" ${4:+"$4"} "$1" -std=c++20 -Wall -Wextra -Wno-unused -Wno-missing-field-initializers -fsyntax-only \
  -I "$include"
for frame in tests/checks/front_doors/*.cpp; do
  unit=$(basename "$frame")
  errors=$work/$unit.errors
  [[ ! -f $errors ]] || offence "${doors[$unit]}:1: its example does not compile: $(grep -m1 error "$errors")"
done
finish "$count front doors"
