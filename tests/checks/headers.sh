#!/usr/bin/env bash
# Every header that is not internal compiles alone, without a warning. A header that its own .cpp includes first is left
# out: the build compiled it alone, since the rooms use no precompiled headers.
# usage: headers.sh COMPILER INCLUDE_FOLDER
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
compiler=$1 include=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mapfile -t headers < <(sources hpp | grep -Ev '/(internal|plugin)/|^(tests|examples)/')
built=0
for header in "${headers[@]}"; do
  own=${header%.hpp}.cpp
  if [[ -f $own && $(grep -m1 '^#include' "$own") == "#include \"troupe/$header\"" ]]; then
    built=$((built + 1))
    continue
  fi
  printf '#include "troupe/%s"\n' "$header" >"$work/${header//\//,}.cpp"
done
if ! find "$work" -name '*.cpp' -print0 | sort -z | xargs -0 -n 8 -P 2 \
  "$compiler" -std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Werror -fsyntax-only -I "$include"; then
  offence 'some header does not compile alone'
fi
finish "${#headers[@]} headers, $built of them by the build"
