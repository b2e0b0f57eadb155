#!/usr/bin/env bash
# CAF's network layer lets an unauthenticated peer spawn and kill actors, so nothing may link it. This checks the built
# binaries, the build's command lines and the includes. Nothing may let CAF read a message from bytes either.
# usage: caf_io.sh BUILD_FOLDER
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
build=$1
name='caf''_io'

count=0
while read -r file; do
  needed=$(readelf -d "$file" 2>/dev/null | grep NEEDED || true)
  [[ -n $needed ]] || continue
  count=$((count + 1))
  if grep -q "lib$name" <<<"$needed"; then offence "$file: links lib$name"; fi
  if nm -D --undefined-only "$file" 2>/dev/null | grep -qE '3caf[0-9]+(binary|stream)_deserializer'; then
    offence "$file: links a deserializer of CAF"
  fi
done < <(find "$build/bin" "$build/lib" -type f 2>/dev/null | sort)
for file in "$build/build.ninja" "$build/compile_commands.json"; do
  [[ -f $file ]] || continue
  while IFS=: read -r line _; do offence "$file:$line: names $name"; done < <(grep -nE -- "-l$name|lib$name\." "$file" || true)
done
while IFS=: read -r file line _; do
  offence "$file:$line: includes caf/io"
done < <(sources hpp cpp | tr '\n' '\0' | xargs -0 -r grep -HnE '#[[:space:]]*include[[:space:]]*[<"]caf/(io|openssl)/' || true)
while IFS=: read -r file line _; do
  offence "$file:$line: lets CAF read a message from bytes"
done < <(sources hpp cpp | tr '\n' '\0' | xargs -0 -r grep -HnE 'deserializer|add_message_type' -- | grep -i caf || true)
finish "$count binaries"
