#!/usr/bin/env bash
# The compiler cache never gives a stale object and never decides whether something compiles. Each case compiles one small
# unit through runtime/cmake/cached.sh and looks at what the object holds.
# usage: cache.sh COMPILER
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
compiler=$(command -v "$1")
cached=$PWD/runtime/cmake/cached.sh
command -v ccache >/dev/null || { echo 'skipped: ccache is not installed'; exit 77; }
work=$(mktemp -d)
trap 'umount "$work/small" 2>/dev/null || true; rm -rf "$work"' EXIT
unset TROUPE_NO_CACHE CCACHE_MAXSIZE CCACHE_STATSLOG
export TROUPE_CACHE=$work/cache

# clone FOLDER VALUE: a tree whose unit's object holds VALUE, and the script as it stands in a clone.
clone() {
  mkdir -p "$1/runtime/cmake" "$1/build" "$1/system"
  cp "$cached" "$1/runtime/cmake/"
  printf 'inline const char* value() { return "value=%s"; }\n' "$2" >"$1/value.hpp"
  printf '#define LEVEL "level=1"\n' >"$1/system/level.h"
  printf '#include <level.h>\n#include "value.hpp"\nconst char* f() { return value(); }\nconst char* g() { return LEVEL; }\n' >"$1/unit.cpp"
}
# compile FOLDER: compiles the unit as the build does. Paths are absolute, and the compiler runs in build/.
compile() {
  (cd "$1/build" && CCACHE_STATSLOG=$work/log "$1/runtime/cmake/cached.sh" "${with:-$compiler}" -isystem "$1/system" \
    -I "$1" "${flags[@]}" -MD -MF unit.d -o unit.o -c "$1/unit.cpp")
}
flags=()
hits() { grep -c '_cache_hit$' "$work/log" 2>/dev/null || true; }
cases=0
# expect WHAT FOLDER WORD...: requires that the object holds every word.
expect() {
  local what=$1 folder=$2 word
  shift 2
  cases=$((cases + 1))
  if ! compile "$folder"; then
    offence "$what: the unit does not compile"
    return
  fi
  for word in "$@"; do
    grep -qa "$word" "$folder/build/unit.o" || offence "$what: the object holds no $word, so it is stale"
  done
  rm -f "$folder/build/unit.o"
}

clone "$work/a" 1
expect 'the first time' "$work/a" value=1 level=1
[[ $(hits) == 0 ]] || offence 'the first compilation is a hit'
clone "$work/elsewhere/b" 1
expect 'a clone in another folder' "$work/elsewhere/b" value=1 level=1
[[ $(hits) == 1 ]] || offence 'a clone in another folder compiles the same unit again'
clone "$work/c" 2
expect 'a clone of another commit' "$work/c" value=2
clone "$work/c" 1
expect 'the commit before' "$work/c" value=1
sed -i s/level=1/level=2/ "$work/a/system/level.h"
expect 'an upgraded header of the system' "$work/a" value=1 level=2

# A header of tomorrow, then another of today.
clone "$work/d" 3
touch -d '1 day' "$work/d/"*.?pp
expect 'a header of tomorrow' "$work/d" value=3
clone "$work/d" 4
expect 'a clock that was set back' "$work/d" value=4
touch -r "$work/d/unit.cpp" "$work/stamp"
clone "$work/d" 5
touch -r "$work/stamp" "$work/d/"*.?pp
expect 'another content of the same size and date' "$work/d" value=5

with=$work/compiler
printf '#!/bin/sh\nexec %s -DLEVEL2 "$@"\n' "$compiler" >"$with" && chmod +x "$with"
printf '#ifdef LEVEL3\nconst char* h() { return "other compiler"; }\n#endif\n' >>"$work/d/unit.cpp"
expect 'a compiler' "$work/d" value=5
printf '#!/bin/sh\nexec %s -DLEVEL3 "$@"\n' "$compiler" >"$with"
expect 'another compiler of the same path' "$work/d" 'other compiler'
with=

# A precompiled header, which ccache knows by a checksum beside it.
for value in 6 7; do
  clone "$work/d" $value
  printf '#define LEVEL "precompiled=%s"\n' $value >"$work/d/system/level.h"
  rm -f "$work/d/build/"*
  cp "$work/d/system/level.h" "$work/d/build/all.hpp"
  (cd "$work/d/build" && "$cached" "$compiler" -x c++-header -MD -MF all.d -o all.hpp.gch -c all.hpp)
  sed -i '/level.h/d' "$work/d/unit.cpp"
  flags=(-Winvalid-pch -Werror -include all.hpp)
  expect 'a precompiled header' "$work/d" precompiled=$value value=$value
  rm -f "$work/d/build/all.hpp.gch.sum"
  expect 'a precompiled header without a checksum' "$work/d" precompiled=$value value=$value
done
flags=()

# Two builds at once, each of its own content, from an empty cache.
rm -rf "$TROUPE_CACHE"
for name in e f; do clone "$work/$name" "$name"; done
for name in e f e f; do compile "$work/$name" & done
wait
expect 'two builds at once' "$work/e" value=e
expect 'two builds at once' "$work/f" value=f

find "$TROUPE_CACHE" -type f -name '*[RM]' -exec sh -c 'head -c 200 /dev/urandom >"$1"' _ {} \;
expect 'damaged entries' "$work/e" value=e
find "$TROUPE_CACHE" -type f -exec sh -c 'echo garbage >"$1"' _ {} \;
echo garbage >"$TROUPE_CACHE/ccache/ccache.conf"
expect 'a damaged cache' "$work/e" value=e
rm -rf "$TROUPE_CACHE"
echo >"$TROUPE_CACHE"
expect 'a file in the place of the folder' "$work/e" value=e
rm "$TROUPE_CACHE"
TROUPE_CACHE=/proc/troupe expect 'a folder that cannot be made' "$work/e" value=e
TROUPE_CACHE=/sys expect 'a folder that cannot be written' "$work/e" value=e
TROUPE_CACHE='' HOME='' XDG_CACHE_HOME='' expect 'no home' "$work/e" value=e
CCACHE_MAXSIZE=1k expect 'a full cache' "$work/e" value=e
if [[ $(id -u) == 0 ]]; then
  rm -rf "$TROUPE_CACHE" && mkdir -p "$TROUPE_CACHE/ccache" && chown -R nobody "$TROUPE_CACHE"
  expect "another user's cache" "$work/e" value=e
  [[ -z $(find "$TROUPE_CACHE" -type f) ]] || offence "another user's cache was used"
  mkdir "$work/small"
  if mount -t tmpfs -o size=16k none "$work/small" 2>/dev/null; then
    TROUPE_CACHE=$work/small expect 'a full disk' "$work/e" value=e
    mount -o remount,ro "$work/small"
    TROUPE_CACHE=$work/small expect 'a disk that may only be read' "$work/e" value=e
  fi
fi
mkdir "$work/bin"
for name in sh mkdir as grep rm; do ln -s "$(command -v $name)" "$work/bin/"; done
PATH=$work/bin expect 'no ccache' "$work/e" value=e
if (cd "$work/e/build" && echo 'int f( {' >../unit.cpp && compile "$work/e" 2>"$work/errors"); then
  offence 'a unit with an error compiles'
fi
[[ $(grep -c 'error: expected primary' "$work/errors") == 1 ]] || offence 'an error is not printed once'
finish "$cases cases"
