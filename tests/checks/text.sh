#!/usr/bin/env bash
# Small rules about text: include guards, length, unfinished work, addresses, and a compiler bug.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

count=0
while read -r file; do
  count=$((count + 1))
  lines=$(wc -l <"$file")
  if ((lines > 1000)); then offence "$file:1: $lines lines: two ideas, two files"; fi
  if [[ $file == *.hpp ]]; then
    grep -q '^#pragma once$' "$file" || offence "$file:1: no #pragma once"
    [[ $file == tests/* ]] || head -1 "$file" | grep -q '^///' ||
      offence "$file:1: a header begins with a /// paragraph that says what it is for"
  fi
done < <(sources hpp cpp cu)

# report SENTENCE PATTERN [grep options]: searches all sources. Its patterns are split so that this file does not match
# itself.
report() {
  local sentence=$1 pattern=$2 line file rest
  while IFS=: read -r file line rest; do
    [[ $rest != *EXPECT_* ]] || continue  # a test that something is refused must name it
    offence "$file:$line: $sentence: ${rest:0:80}"
  done < <(sources hpp cpp cu cuh capnp | tr '\n' '\0' | xargs -0 -r grep -HnE "$pattern" || true)
}
report 'finish it or leave it out' '\b(TO''DO|FIX''ME|XX''X|HA''CK)\b'
report '127.0.0.1, since a minimal system does not know the name' '"local''host'
# GCC 12 destroys a braced temporary inside co_await or co_yield twice, so it needs a name first. Options, "({...", are
# safe.
report 'name the braced value before awaiting' '\bco_(await|yield)\b[^;]*[A-Za-z0-9_>]\{[^;]*\}'
finish "$count files"
