# Shared by the checks: the list of sources and the way an offence is reported.
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C.UTF-8

offences=0
offence() {
  printf '%s\n' "$*"
  offences=$((offences + 1))
}

# Ends the check: prints how much was checked.
finish() {
  if ((offences > 0)); then
    printf '%d offences\n' "$offences"
    exit 1
  fi
  printf '%s: no offence\n' "$*"
}

rooms=(runtime objectstore actors kernels train tune)

# sources EXTENSION...: lists the files of the rooms, examples and tests with these endings.
sources() {
  local where=() names=() folder ending
  for folder in "${rooms[@]}" examples tests; do
    [[ ! -d $folder ]] || where+=("$folder")
  done
  for ending in "$@"; do names+=(-o -name "*.$ending"); done
  find "${where[@]}" -type f \( "${names[@]:1}" \) | sort
}
