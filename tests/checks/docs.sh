#!/usr/bin/env bash
# Names in code letters in runtime/docs/ must exist: files under runtime/ or the root, other names in some source or
# header of the product.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rooms='runtime objectstore actors kernels train tune'
names=$(mktemp)
trap 'rm -f "$names"' EXIT
# shellcheck disable=SC2086
grep -rhoE --include='*.hpp' --include='*.cpp' '[A-Za-z_][A-Za-z_0-9]{2,}' $rooms | sort -u >"$names"
count=0
for page in runtime/docs/*.md; do
  while IFS=: read -r line word; do
    count=$((count + 1))
    case $word in
      */*.hpp | */*.cpp | */*.md | */*.sh)
        [[ -e $word || -e runtime/$word ]] || offence "$page:$line: there is no file $word" ;;
      *[!A-Za-z_0-9:.]*) ;;   # an expression: it is not checked
      *)
        for part in ${word//[:.]/ }; do
          ((${#part} < 3)) || [[ $part =~ ^[0-9]+$ ]] || grep -qxF "$part" "$names" ||
            offence "$page:$line: nothing in the code is called $part (in $word)"
        done ;;
    esac
  done < <(grep -noP '`\K[^`]+(?=`)' "$page")
done
finish "$count names in runtime/docs"
