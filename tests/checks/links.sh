#!/usr/bin/env bash
# Links go down the layers, as includes do. A function that is declared low and defined high makes a circle that no include
# shows, so this reads which symbols each room's archive needs and which archive defines them.
# usage: links.sh BUILD_FOLDER
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
build=$1

# A room may need symbols of rooms with lower numbers only. The numbers follow tests/checks/includes.sh.
declare -A layer=(
  [base]=0 [objectstore]=1 [observe]=1 [ring]=1 [sealing]=1 [storage]=1 [kernels]=1 [net]=2 [wire]=2 [os]=3 [engine]=3 [scheduling]=4 [front]=5 [client]=6 [control]=6
  [agent]=7 [boot]=8 [collective]=9 [collective_tcp]=10 [actors]=10 [train_core]=11 [train]=12 [tune]=13 [cli]=14
)

symbols=$(mktemp)
trap 'rm -f "$symbols"' EXIT
count=0
while read -r archive; do
  room=$(basename "$archive" .a)
  room=${room#libroom_}
  count=$((count + 1))
  [[ -n ${layer[$room]:-} ]] || offence "$archive: the room $room has no layer in tests/checks/links.sh"
  # D: a strong definition; U: a need. What a template makes is weak, and belongs to whoever uses it.
  nm -A -P "$archive" 2>/dev/null | awk -v room="$room" -v layer="${layer[$room]:-99}" '
    { for (i = 1; i <= NF; ++i) if ($i ~ /^_Z/) { name = $i; type = $(i + 1); break } else name = ""
      if (name == "" || name !~ /6troupe/) next
      if (type ~ /^[TDBR]$/) print "D", name, room, layer
      else if (type == "U") print "U", name, room, layer, $1 }' | sort -u >>"$symbols"
done < <(find "$build" -name 'libroom_*.a' | sort)
((count > 0)) || { echo "skipped: $build has no archive of a room; build first"; exit 77; }

while read -r name room definer unit; do
  offence "room $room needs $(c++filt "$name"), which $definer defines above it or beside it (${unit%:})"
done < <(awk '
  $1 == "D" { definer[$2] = $3; height[$2] = $4; next }
  { needs[++n] = $0 }
  END {
    for (i = 1; i <= n; ++i) {
      split(needs[i], need, " ")
      name = need[2]
      if (name in definer && definer[name] != need[3] && height[name] >= need[4]) print name, need[3], definer[name], need[5]
    }
  }' "$symbols" | sort -u)
finish "$count archives"
