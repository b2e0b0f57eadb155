#!/usr/bin/env bash
# Installs the build into a folder of its own and uses the package as a stranger would: through find_package, through
# pkg-config, and by every header. The include path holds nothing of the source tree.
# usage: package_test.sh BUILD SOURCE COMPILER [example...]
set -euo pipefail
build=$1 source=$2 compiler=$3
shift 3
# A fixed place, so that a compiler cache knows the paths. The programs and the package are made anew.
work=$build/package/consumers
launcher=$source/runtime/cmake/cached.sh
rm -rf "$work" && mkdir -p "$work"
say() { printf '== %s\n' "$*"; }

say install
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"   # an installed package that was moved still works
prefix=$work/prefix
for unwanted in internal schema plugin; do
  [[ -z $(find "$prefix/include" -name "$unwanted") ]] || { say "$unwanted/ was installed"; exit 1; }
done

programs=("$source/tests/package/consumer.cpp")
for example in "$@"; do programs+=("$source/examples/$example.cpp"); done

# run_program FILE: runs it with a limit of a minute, and without the build's library in reach.
run_program() {
  case $(basename "$1") in
    03_map_reduce) timeout 60 "$1" "$source/LICENSE" >/dev/null ;;
    *) timeout 60 "$1" ;;
  esac
}

say find_package
sources=$(IFS=';' && echo "${programs[*]}")
cmake -S "$source/tests/package" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DCONSUMER="$source/tests/package/consumer.cpp" -DSOURCES="$sources" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/cmake" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for program in "${programs[@]}"; do run_program "$work/cmake/$(basename "$program" .cpp)"; done
"$work/cmake/by_component"

say pkg-config
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name troupe.pc)")
export PKG_CONFIG_PATH
libraries=$(pkg-config --variable=libdir troupe)
for program in "${programs[@]}"; do
  name=$(basename "$program" .cpp)
  # shellcheck disable=SC2046
  (cd "$work" && "$launcher" "$compiler" -std=c++20 -Wall -Wextra -Werror $(pkg-config --cflags troupe) -c "$program" -o "$name.o")
  # shellcheck disable=SC2046
  "$compiler" "$work/$name.o" -o "$work/$name" $(pkg-config --libs troupe)
  LD_LIBRARY_PATH=$libraries run_program "$work/$name"
done

# Includes all headers together. check.headers compiles each alone in the tree; a header that is not installed is missing
# here.
say 'all installed headers'
cd "$prefix/include"
find troupe -name '*.hpp' | sort >"$work/headers"
while read -r header; do printf '#include "%s"\n' "$header"; done <"$work/headers" >"$work/all.cpp"
"$launcher" "$compiler" -std=c++20 -fsyntax-only -I "$prefix/include" "$work/all.cpp"
say "$(wc -l <"$work/headers") headers, ${#programs[@]} programs, two ways: all good"
