#!/usr/bin/env bash
# The usage example at the head of each front-door header compiles. front_doors/NAME.cpp holds the code that the example
# assumes, with `// EXAMPLE troupe/…` in the example's place.
# usage: front_doors.sh COMPILER INCLUDE_FOLDER
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
compiler=$1 include=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# example HEADER: prints the first code in the header's first comment, which is indented by four more spaces
example() { awk '/^#pragma/ || (code && /^\/\/\/ [^ ]/) { exit } /^\/\/\/     / { code = 1; print substr($0, 9) }' "$1"; }

count=0
for frame in tests/checks/front_doors/*.cpp; do
  count=$((count + 1))
  header=$(sed -n 's#^ *// EXAMPLE troupe/##p' "$frame")
  if [[ ! -f $header ]]; then
    offence "$frame:1: its header '$header' is not there"
    continue
  fi
  example "$header" >"$work/example"
  [[ -s $work/example ]] || { offence "$header:1: has no example in its first comment"; continue; }
  sed -e "/\/\/ EXAMPLE /{r $work/example" -e 'd}' "$frame" >"$work/$(basename "$frame")"
  if ! "$compiler" -std=c++20 -Wall -Wextra -Wno-unused -Wno-missing-field-initializers -fsyntax-only -I "$include" \
    "$work/$(basename "$frame")" 2>"$work/errors"; then
    offence "$header:1: its example does not compile: $(grep -m1 error "$work/errors")"
  fi
done
finish "$count front doors"
