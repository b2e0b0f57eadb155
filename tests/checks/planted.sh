#!/usr/bin/env bash
# Every step of CI still finds what it is for when the caches are warm. Each case builds the smallest target that shows it,
# plants one mistake in a clone, and expects the same command to fail; without the mistake the command passes again.
# Takes about five minutes on two cores, so it is no test of ctest.
# usage: planted.sh [CASE...]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q "$root" "$work/tree"
cd "$work/tree"
unit=runtime/base/size_text.cpp header=runtime/base/deadline.hpp test=tests/runtime/base/size_text_test.cpp
failures=0 cases=0

dev() { ./dev "$@" >"$work/log" 2>&1; }
release() { dev test --build runtime_base_test -R '^runtime/base\.'; }
alone() { dev --set TROUPE_PRECOMPILE=rooms --set TROUPE_WERROR=ON build room_base; }
asan() { dev --preset asan test --build runtime_base_test -R '^runtime/base\.'; }
tsan() { dev --preset tsan test --build runtime_base_test -R '^runtime/base\.'; }
standard() { tests/checks/standard.sh >"$work/log" 2>&1; }
headers() { dev test --build troupe_schema -R '^check\.headers$'; }
objection() {   # a build folder in which each unit is compiled alone has the flags
  dev --folder "$work/alone" build troupe_schema &&
    tests/checks/tidy.py --build "$work/alone/build" --memory "${TROUPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe}/tidy" \
      "$unit" >"$work/log" 2>&1
}

# case_ NAME COMMAND PATTERN FILE SED: requires that the command passes, that it fails with a line like PATTERN once the script
# of sed has changed the file, and that it passes again without the change.
case_() {
  local name=$1 command=$2 pattern=$3 file=$4 script=$5
  [[ -z ${only:-} || " $only " == *" $name "* ]] || return 0
  cases=$((cases + 1))
  printf 'planted: %s\n' "$name"
  "$command" || { cat "$work/log"; echo "$name: fails without a mistake"; failures=$((failures + 1)); return 0; }
  cp "$file" "$work/saved"
  sed -i -E "$script" "$file"
  cmp -s "$file" "$work/saved" && { echo "$name: nothing was planted"; failures=$((failures + 1)); return 0; }
  if "$command"; then
    echo "$name: was not found"
    failures=$((failures + 1))
  elif ! grep -qE -- "$pattern" "$work/log"; then
    tail -30 "$work/log"
    echo "$name: no line says: $pattern"
    failures=$((failures + 1))
  fi
  cp "$work/saved" "$file"
  "$command" || { echo "$name: is still there after it was taken back"; failures=$((failures + 1)); }
}

only=$*
case_ compile_error alone 'error: ' $unit '$a int planted = "x";'
case_ warning alone 'unused' $unit '$a static int planted() { return 0; }'
case_ missing_include alone 'error: ' $unit '/troupe.runtime.base.size_text/d'
case_ missing_standard_include standard 'nobody includes <optional>' runtime/base/size_text.hpp '/<optional>/d'
case_ changed_header release 'error: |Failed' $header 's/deadline - now/now - deadline/'
case_ header_alone headers 'does not compile alone' $header '/#include/d'
case_ leak asan 'LeakSanitizer' $test '$a TEST(Planted, Leak) { int* volatile leaked = new int[100]; leaked[0] = 1; leaked = nullptr; }'
case_ race tsan 'data race' $test '$a #include <thread>\nTEST(Planted, Race) { int n = 0; std::thread other([&] { ++n; }); ++n; other.join(); EXPECT_EQ(n, 2); }'
case_ objection objection 'modernize-use-nullptr' $unit '$a namespace troupe { int* planted(); int* planted() { return 0; } }'
((failures == 0)) || { echo "$failures failures"; exit 1; }
echo "$cases mistakes: each was found"
