#!/usr/bin/env bash
# No command line of the build defines a macro with an absolute path. A compiler cache then serves a clone in another
# folder as well.
# usage: commands.sh BUILD_FOLDER
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

while IFS= read -r line; do
  if [[ $line == *:* ]]; then offence "$line"; else count=$line; fi
done < <(FOLDER=$PWD/ awk '
  /^ *"command":/ { ++count; command = index($0, "-D") ? $0 : ""; next }
  /^ *"file":/ && command != "" {
    file = $0
    sub(/^ *"file": *"/, "", file)
    sub(/",?$/, "", file)
    if (index(file, ENVIRON["FOLDER"]) == 1) file = substr(file, length(ENVIRON["FOLDER"]) + 1)
    # A path begins with a slash after the equals sign, a quote or what parts the entries of a list.
    while (match(command, /[ "]-D ?[A-Za-z_][A-Za-z_0-9]*=([^ ]*[\\"\047:;,(=<])?\/[A-Za-z_0-9.][^ ]*/)) {
      definition = substr(command, RSTART + 1, RLENGTH - 1)
      command = substr(command, RSTART + RLENGTH)
      gsub(/\\/, "", definition)
      printf "%s: %s: a definition holds an absolute path; put it into tests/paths (see tests/paths.hpp)\n", file, definition
    }
  }
  END { print count + 0 }' "$1/compile_commands.json")
finish "$count commands"
