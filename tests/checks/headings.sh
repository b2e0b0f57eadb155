#!/usr/bin/env bash
# A comment in a class may end with the name of a source, such as `// the door (node_door.cpp)`. The functions below it,
# up to the next such comment or empty line, must be defined in that source.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Prints line, source and name of each function that is declared under such a heading.
declared() {
  awk '
    function name_of(text,    before) {
      do { before = text; gsub(/<[^<>]*>/, "", text) } while (text != before)
      if (text ~ /^[^(]*=/ || !match(text, /~?[A-Za-z_0-9]+ *\(/)) return ""
      text = substr(text, RSTART, RLENGTH)
      gsub(/[ (]/, "", text)
      return text
    }
    /^ *\/\/ .*\([a-z_0-9]+\.cpp\)$/ {
      source = $0; sub(/.*\(/, "", source); sub(/\)$/, "", source)
      statement = ""; depth = 0
      print FNR, source, "-"
      next
    }
    /^ *$/ || /^ *\/\/[^\/]/ { if (depth == 0) source = ""; next }
    source != "" {
      line = $0
      sub(/\/\/.*/, "", line)
      if (line ~ /^ *$/) next
      if (statement == "") first = FNR
      statement = statement " " line
      depth += gsub(/{/, "{", line) - gsub(/}/, "}", line)
      if (depth == 0 && line ~ /[;}] *$/) {
        if (statement !~ /{/ && (name = name_of(statement)) != "") print first, source, name
        statement = ""
      }
    }' "$1"
}

count=0
while read -r header; do
  while read -r line source name; do
    defining=$(dirname "$header")/$source
    if [[ ! -f $defining ]]; then
      offence "$header:$line: there is no $defining"
    elif [[ $name != - ]]; then
      count=$((count + 1))
      grep -qE "^([^ ].*[ :*&~])?$name\(" "$defining" || offence "$header:$line: $name is not defined in $defining, where its heading says"
    fi
  done < <(declared "$header")
done < <(sources hpp | tr '\n' '\0' | xargs -0 -r grep -lE '^ *// .*\([a-z_0-9]+\.cpp\)$' || true)
finish "$count functions below headings"
