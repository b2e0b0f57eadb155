#!/usr/bin/env bash
# The README's own text holds. Its first program is built against the installed package with the README's CMakeLists.txt
# and prints what the README says. Exit codes, verbs of ./dev and links exist.
# usage: readme_test.sh BUILD SOURCE COMPILER
set -euo pipefail
build=$1 source=$2 compiler=$3
readme=$source/README.md
work=$build/package/readme   # a fixed place, so that a compiler cache knows the paths
launcher=$source/runtime/cmake/cached.sh
rm -rf "$work" && mkdir -p "$work"
say() { printf '== %s\n' "$*"; }
fail() { printf 'README: %s\n' "$*" >&2; exit 1; }

# block NAME: prints the fenced block that follows a line holding only `NAME`.
block() {
  awk -v name="\`$1\`" '$0 == name { armed = 1; next }
    armed && /^```/ { if (inside) exit; inside = 1; next }
    inside { print }' "$readme"
}
# expect CODE COMMAND...: requires that the program ends with this code within a minute.
expect() {
  local wanted=$1 code=0
  shift
  timeout 60 "$@" >"$work/out" 2>"$work/err" || code=$?
  [[ $code == "$wanted" ]] || { cat "$work/err"; fail "'${*##*/}' ended with $code instead of $wanted"; }
}

say 'the first program'
mkdir "$work/first"
for file in main.cpp CMakeLists.txt; do
  block "$file" >"$work/first/$file"
  [[ -s $work/first/$file ]] || fail "there is no block named $file"
done
[[ $(wc -l <"$work/first/main.cpp") -le 30 ]] || fail 'main.cpp has more than 30 lines'
[[ $(wc -l <"$work/first/CMakeLists.txt") -le 6 ]] || fail 'CMakeLists.txt has more than 6 lines'
cmake --install "$build" --prefix "$work/prefix" >/dev/null
build_project() {  # FOLDER [flags]
  cmake -S "$1" -B "$1/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >"$work/log" 2>&1 && cmake --build "$1/build" >>"$work/log" 2>&1 ||
    { cat "$work/log"; fail "the project in ${1##*/} does not build"; }
}
build_project "$work/first"
expect 0 "$work/first/build/primes"
diff <(block output) "$work/out" || fail 'the first program prints something else'
expect 2 "$work/first/build/primes" --troupe-no-such-flag=1
grep -q -- --troupe-no-such-flag "$work/err" || fail 'the refused flag is not named'
expect 2 "$work/first/build/primes" --troupe-help
grep -q -- '--troupe-help: unknown; known are --troupe-address, ' "$work/err" || fail 'a flag that is unknown is not called so'

say 'exit codes'
mkdir "$work/codes"
cp "$source/tests/package/readme_exit_codes.cpp" "$work/codes/main.cpp"
sed 's/primes/codes/' "$work/first/CMakeLists.txt" >"$work/codes/CMakeLists.txt"
build_project "$work/codes"
expect 0 "$work/codes/build/codes" nothing
expect 7 "$work/codes/build/codes" seven
expect 1 "$work/codes/build/codes" exception
grep -q 'thrown by the body' "$work/err" || fail 'the exception is not printed'
expect 1 "$work/codes/build/codes" task
grep -q 'thrown by a task.*pid' "$work/err" || fail "the task's error does not say where it arose"
expect 2 "$work/codes/build/codes" nothing --troupe-cpus none

say 'verbs and links'
pages=$(cd "$source" && find . -name README.md -not -path './build*' -not -path './.*/*')
verbs=$("$source/dev" --help | sed -n 's/^  \([a-z]\+\)  *.*/\1/p')
while read -r page; do
  folder=$(dirname "$source/$page")
  while read -r verb; do
    grep -qx "$verb" <<<"$verbs" || fail "$page names ./dev $verb, which does not exist"
  done < <(grep -oP '\./dev( --\w+ \w+)* \K[a-z]+' "$folder/README.md" || true)
  while read -r link; do
    [[ -e $folder/$link ]] || fail "$page links to $link, which does not exist"
  done < <(grep -oP '\]\(\K[^)#:]+(?=[)#])' "$folder/README.md" || true)
done <<<"$pages"
say "$(wc -l <<<"$pages") pages: all good"
