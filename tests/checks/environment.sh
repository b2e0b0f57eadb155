#!/usr/bin/env bash
# runtime/docs/environment.md lists each variable that the product reads. "TROUPE_X" occurs in one file only, the one that
# the table names. Only Environment and files that the page names call getenv().
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

page=runtime/docs/environment.md
readers=$(grep -oP '`\K[a-z_/]+\.cpp(?=`)' "$page" | sort -u)
# row VARIABLE: prints the line number and the file of its row
row() { grep -nE "^\| \`$1\` \|.*\`[a-z_/]+\.cpp\` \|$" "$page" | sed -E 's/^([0-9]+):.*`([a-z_\/]+\.cpp)` \|$/\1 \2/' | head -1; }
# The page's paths are below runtime/ or the root.
path_of() { if [[ -e runtime/$1 ]]; then echo "runtime/$1"; else echo "$1"; fi; }
product() { sources hpp cpp cu cuh | grep -Ev '^(tests|examples)/' | tr '\n' '\0'; }

declare -A found=()
while IFS=: read -r file line name; do
  name=${name//\"/}
  if [[ -n ${found[$name]:-} ]]; then
    [[ ${found[$name]} == "$file" ]] || offence "$file:$line: $name is read in ${found[$name]} already: a variable is read in one place"
    continue
  fi
  found[$name]=$file
  read -r at reader <<<"$(row "$name") "
  if [[ -z $at ]]; then
    offence "$file:$line: $name has no row in $page"
  elif [[ $(path_of "$reader") != "$file" ]]; then
    offence "$page:$at: $name is read in $file, not in $reader"
  fi
done < <(product | xargs -0 -r grep -HnoE '"TROUPE_[A-Z_]+"' || true)
while IFS=: read -r line name; do
  [[ -n ${found[$name]:-} ]] || offence "$page:$line: nothing reads $name"
done < <(grep -noP '^\| `\KTROUPE_[A-Z_]+' "$page" || true)
while IFS=: read -r file line _; do
  [[ $file == runtime/base/environment.cpp ]] && continue
  for reader in $readers; do [[ $(path_of "$reader") != "$file" ]] || continue 2; done
  offence "$file:$line: calls getenv, and $page does not name it: use Environment, and say what it reads"
done < <(product | xargs -0 -r grep -HnE '\bgetenv\(' || true)
finish "${#found[@]} variables of the environment"
