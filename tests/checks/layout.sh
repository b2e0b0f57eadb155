#!/usr/bin/env bash
# The top level holds the agreed files and folders and nothing else, so that a newcomer sees every room at once.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

allowed=' CMakeLists.txt runtime objectstore actors train tune kernels examples tests README.md LICENSE dev '
for entry in *; do
  [[ $entry == build* || $allowed == *" $entry "* ]] || offence "$entry:1: does not belong to the top level"
done
for room in "${rooms[@]}" examples tests; do
  [[ -d $room ]] || offence "$room:1: this folder is missing"
done
# Every room has a CMakeLists.txt.
for room in "${rooms[@]}"; do
  [[ -f $room/CMakeLists.txt ]] || offence "$room/CMakeLists.txt:1: missing"
done
finish 'the top level'
