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

# Prints the headers of the standard library that builds precompile.
precompiled() { sed -n '/set(headers </,/)/p' runtime/cmake/rooms.cmake 2>/dev/null | grep -oE '<[a-z_]+>' || true; }

# fill FILE TEXT: makes the file hold the text. A file that holds it already keeps its date.
fill() { [[ -f $1 && $(<"$1") == "$2" ]] || printf '%s\n' "$2" >"$1"; }

# The texts of the units that a check compiles, by the name of the unit's file.
declare -A units=()

# compile_units FOLDER COMMAND...: writes the units into the folder and runs the command on each, two at a time.
# UNIT.errors stays for each unit that fails. A compiler cache knows the units again, since their folder stays the same.
compile_units() (
  cd "$1"
  shift
  for unit in *.cpp; do [[ -n ${units[$unit]:-} ]] || rm -f "$unit"; done
  rm -f ./*.errors
  for unit in "${!units[@]}"; do
    fill "$unit" "${units[$unit]}"
    : >"$unit.errors"  # stays when the command cannot be run either
  done
  ((${#units[@]} > 0)) || return 0
  # shellcheck disable=SC2016
  printf '%s\n' "${!units[@]}" | sort | tr '\n' '\0' |
    xargs -0 -n 1 -P 2 bash -c '"$@" 2>"${!#}.errors" && rm "${!#}.errors"' _ "$@" || true
)
