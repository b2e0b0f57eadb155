#!/usr/bin/env bash
# Builds and uses the compute subset as a stranger would: with none of the runtime's libraries, through find_package, by
# every installed header, and with two processes that a launcher has started.
# usage: subset_test.sh FOLDER SOURCE COMPILER
set -euo pipefail
folder=$1 source=$2 compiler=$3
work=$folder-user   # a fixed place, so that a compiler cache knows the paths
launcher=$source/runtime/cmake/cached.sh
rm -rf "$work" && mkdir -p "$work"
say() { printf '== %s\n' "$*"; }
fail() { say "$*"; exit 1; }
quiet() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "failed: $*"; }; }

say build
absent=()
for name in CapnProto CAF CLI11 RocksDB OpenSSL fmt PkgConfig GTest; do
  absent+=("-DCMAKE_DISABLE_FIND_PACKAGE_$name=ON")
done
generator=()
! command -v ninja >/dev/null || generator=(-G Ninja)
quiet cmake -S "$source" -B "$folder" "${generator[@]}" -DTROUPE_SUBSET=compute -DTROUPE_BUILD_TESTS=OFF \
  -DTROUPE_BUILD_EXAMPLES=OFF -DTROUPE_WITH_CUDA=OFF -DTROUPE_UNITY=8 -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$compiler" "${absent[@]}"
quiet cmake --build "$folder" --parallel 2
library=$folder/lib/libtroupe.so
foreign=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -Ev '^(libstdc\+\+|libm|libgcc_s|libc|libdl|libpthread|ld-linux.*)\.so' || true)
[[ -z $foreign ]] || fail "libtroupe.so of the subset needs $foreign"

say install
quiet cmake --install "$folder" --prefix "$work/first"
mv "$work/first" "$work/prefix"   # an installed package that was moved still works
headers=$(cd "$work/prefix/include/troupe" && find . -name '*.hpp' | sed 's,^\./,,' | sort)
for wanted in actors/collective/mesh.hpp train/engine/engine.hpp kernels/device/device.hpp runtime/base/error.hpp; do
  grep -qx "$wanted" <<<"$headers" || fail "$wanted was not installed"
done
surplus=$(grep -Ev '^(actors/collective|kernels|runtime/base|train/(params|layers|models|optimizers|pipeline|engine|checkpoint|data))/|^(runtime/version|actors/actors|train/(layout|hash|sampler|schedule|text))\.hpp$' <<<"$headers" || true)
surplus+=$(grep -E '/(internal|plugin)/' <<<"$headers" || true)
[[ -z $surplus ]] || fail "the subset installs what does not belong to it: $surplus"
sed 's,.*,#include "troupe/&",' <<<"$headers" >"$work/all.cpp"
quiet "$launcher" "$compiler" -std=c++20 -fsyntax-only -I "$work/prefix/include" "$work/all.cpp"

say find_package
mkdir "$work/user" "$work/asks"
cat >"$work/user/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(user CXX)
find_package(troupe 0.1 REQUIRED COMPONENTS train)
add_executable(user ${PROGRAM})
target_link_libraries(user PRIVATE troupe::train)
TEXT
quiet cmake -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DPROGRAM="$source/examples/11_torchrun.cpp"
quiet cmake --build "$work/user/build"
quiet "$source/tests/package/torchrun_test.sh" "$work/user/build/user"

say 'what the subset does not have'
sed 's/COMPONENTS train/COMPONENTS train runtime/' "$work/user/CMakeLists.txt" >"$work/asks/CMakeLists.txt"
if cmake -S "$work/asks" -B "$work/asks/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DPROGRAM="$source/examples/11_torchrun.cpp" >"$work/log" 2>&1; then
  fail 'find_package accepts COMPONENTS runtime'
fi
sentence="this package of troupe has no component 'runtime': it was configured with -DTROUPE_SUBSET=compute; it has base actors kernels train"
tr -s ' \n' ' ' <"$work/log" | grep -qF "$sentence" || { cat "$work/log"; fail 'find_package does not say why'; }
say "$(wc -l <<<"$headers") headers, one program of one to three processes: all good"
