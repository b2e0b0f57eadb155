#!/bin/sh
# Runs a compiler's command line through ccache. Where ccache is missing, or its folder cannot be used, this runs the command
# alone: a cache never decides whether something compiles. CMake starts every compiler with this script, so ccache may come
# and go, and no command line changes.
# usage: cached.sh COMPILER ARGUMENT...
#
# $TROUPE_CACHE/ccache is the folder (~/.cache/troupe/ccache without the variable). It holds at most 5 GiB, or
# $CCACHE_MAXSIZE. All options that decide which compilations count as equal stand here, whatever the user's own are.
plainly() { exec "$@"; }

# ccache would read a precompiled header, 70 MB, for each unit that uses it. It reads a checksum beside the header instead.
# Without a list of dependencies (-MD) it compares a header's preprocessed text, which does not show a changed macro.
made=
case " $* " in *.gch\ *)
  for word in "$@"; do
    case $word in *.gch) made=$word ;; esac
  done
  rm -f "$made.sum"
  case " $* " in *" -MD "*) ;; *) plainly "$@" ;; esac
  ;;
esac
[ -z "$TROUPE_NO_CACHE" ] && command -v ccache >/dev/null 2>&1 || plainly "$@"
home=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
folder=${TROUPE_CACHE:-${home:+$home/troupe}}
[ -n "$folder" ] && mkdir -p "$folder/ccache" 2>/dev/null || plainly "$@"
# An object of another user may hold anything.
[ -w "$folder/ccache" ] && [ -O "$folder/ccache" ] || plainly "$@"

# Paths below the base folder are compared relative to the folder in which the compiler runs. The base folder is the clone, or
# the folder above it that holds the build folder too.
base=${0%/runtime/cmake/*}
while [ -n "$base" ]; do
  case $PWD/ in "$base"/*) break ;; esac
  base=${base%/*}
done
unset CCACHE_DISABLE CCACHE_READONLY CCACHE_RECACHE CCACHE_CONFIGPATH CCACHE_PREFIX CCACHE_COMPILER CCACHE_COMPILERTYPE \
  CCACHE_IGNOREHEADERS CCACHE_IGNOREOPTIONS CCACHE_EXTRAFILES CCACHE_REMOTE_STORAGE CCACHE_SECONDARY_STORAGE CCACHE_NAMESPACE
export LC_ALL=C.UTF-8 CCACHE_DIR="$folder/ccache" CCACHE_BASEDIR="$base" CCACHE_NOHASHDIR=true CCACHE_COMPILERCHECK=content \
  CCACHE_DEPEND=true CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_ABSSTDERR=true CCACHE_PCH_EXTSUM=true \
  CCACHE_MAXSIZE="${CCACHE_MAXSIZE:-5G}"

# ccache ends with an error of its own when its folder is damaged or its disk is full. Then the compiler runs alone.
{ errors=$(ccache "$@" 2>&1 1>&3 3>&-); } 3>&1
code=$?
[ $code != 0 ] || [ -z "$made" ] || sha256sum <"$made" >"$made.sum" 2>/dev/null || rm -f "$made.sum"
case $code:$errors in
  0:) exit 0 ;;
  0:*) ;;
  *'ccache: error: '*) plainly "$@" ;;
esac
[ -z "$errors" ] || printf '%s\n' "$errors" >&2
exit $code
