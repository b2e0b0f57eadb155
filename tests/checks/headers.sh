#!/usr/bin/env bash
# Every header that is not internal compiles alone, without a warning. The build compiles a header that its own .cpp
# includes first, so this check leaves it out. Here, as in CI's build, the standard library is precompiled. It hides a
# missing header of the standard library, which check.standard finds.
# usage: headers.sh COMPILER INCLUDE_FOLDER WORK_FOLDER [LAUNCHER]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
mkdir -p "$3"
include=$(realpath -s "$2") work=$(realpath -s "$3")
compile=(${4:+"$4"} "$1" -std=c++20 -Wall -Wextra -Wno-missing-field-initializers -Winvalid-pch -Werror -I "$include")
# clang refuses a precompiled header whose source has another date, as it has in another clone.
[[ $("$1" --version) != *clang* ]] || compile+=(-Xclang -fno-pch-timestamp)

mapfile -t headers < <(sources hpp | grep -Ev '/(internal|plugin)/|^(tests|examples)/')
for header in "${headers[@]}"; do
  own=${header%.hpp}.cpp
  if [[ ! -f $own || $(grep -m1 '^#include' "$own") != "#include \"troupe/$header\"" ]]; then
    units[${header//\//,}.cpp]="#include \"troupe/$header\""
  fi
done

fill "$work/standard.hpp" "$(precompiled | sed 's/^/#include /')"
rm -f "$work/standard.hpp.gch"
(cd "$work" && "${compile[@]}" -x c++-header -MD -MF standard.d -c standard.hpp -o standard.hpp.gch) ||
  offence 'runtime/cmake/rooms.cmake:1: the standard library cannot be precompiled'
compile_units "$work" "${compile[@]}" -include standard.hpp -fsyntax-only
for header in "${headers[@]}"; do
  errors=$work/${header//\//,}.cpp.errors
  [[ -f $errors ]] || continue
  cat "$errors"
  offence "$header:1: does not compile alone"
done
finish "${#headers[@]} headers, $((${#headers[@]} - ${#units[@]})) of them by the build"
