#!/usr/bin/env bash
# Includes go from upper rooms to lower ones only, and stay out of other packages' internals. Headers that users include
# use the standard library and troupe alone. The rooms above the runtime use only what users may use.
#   base <- objectstore <- runtime <- actors <- train <- tune, kernels on base, actors on kernels; floors may be skipped.
#   runtime/cli is the command line, above train.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The rooms that each room may include. Every room may include runtime/base.
declare -A below=(
  [base]=''
  [objectstore]='objectstore'
  [kernels]='kernels'
  [runtime]='runtime objectstore'
  [cli]='cli train kernels actors runtime objectstore'
  [actors]='actors kernels runtime objectstore'
  [train]='train kernels actors runtime objectstore'
  [tune]='tune train actors runtime objectstore'
  [examples]='train tune kernels actors runtime objectstore'
  [tests]='tests cli train tune kernels actors runtime objectstore'
)
third_party='^<(caf|capnp|kj|rocksdb|boost|spdlog|fmt|nlohmann|toml\+\+|CLI|openssl|gtest|gmock|rapidcheck|benchmark)/|^<(zmq|nccl|cublas|cuda|cudnn|xxhash|lz4|zstd|rapidcheck|cblas|dnnl)[a-zA-Z_0-9]*(\.h|\.hpp)?>|\.capnp\.h[">]$'

# The layers of runtime/, from below. A folder may include folders with lower numbers, and of its own layer only those in
# `beside`.
declare -A layer=(
  [base]=0 [ring]=1 [wire]=1 [net]=1 [os]=2 [engine]=3 [scheduling]=4 [front]=5 [detail]=5 [client]=6 [control]=6 [agent]=7
  [boot]=8 [cli]=9
)
declare -A beside=([detail]=front [front]=detail)

# folder_of PATH: prints the layer's folder of a file of runtime/, and nothing for other files
folder_of() {
  local rest=${1#runtime/}
  [[ $1 == runtime/* ]] || return 0
  if [[ $rest == */* ]]; then echo "${rest%%/*}"; else echo front; fi
}

check_layers() {
  local file=$1 line=$2 target=$3 from to
  from=$(folder_of "$file")
  to=$(folder_of "$target")
  [[ -n $from && -n $to && $from != "$to" && $target != runtime/troupe.hpp && $file != runtime/troupe.hpp ]] || return 0
  if [[ -z ${layer[$from]:-} || -z ${layer[$to]:-} ]]; then
    offence "$file:$line: runtime/$from or runtime/$to has no layer in tests/checks/includes.sh"
  elif ((layer[$to] >= layer[$from])) && [[ ${beside[$from]:-} != "$to" ]]; then
    offence "$file:$line: runtime/$from may not include runtime/$to, which stands above it or beside it"
  fi
}

# Rooms that use the other rooms as a user does: only public headers, and no name of `detail` or of another room's
# `internal`.
strangers=' kernels actors train tune examples '
# The namespace of a room's code below troupe, where it differs from the room's name.
declare -A namespace_of=([actors]=collective)

check_stranger() {
  local file=$1 line=$2 target=$3 room=${1%%/*}
  [[ $strangers == *" $room "* && $target != "$room"/* ]] || return 0
  case $target in
    runtime/base/* | objectstore/objectstore.hpp) ;;
    runtime/*/* | objectstore/* | */detail/*)
      offence "$file:$line: $room includes what users include of other rooms, not \"troupe/$target\"" ;;
  esac
}

# Finds names that are private to other rooms. A private name that a public header declares can be used without an
# include.
check_names() {
  local room own names file line what
  for room in $strangers; do
    [[ -d $room ]] || continue
    own=${namespace_of[$room]:-$room}
    names='\btroupe::detail::|\b(collective|kernels|train|tune|objectstore|client|agent|control)::internal::'
    # In a room without a `detail` of its own, an unqualified `detail` is the runtime's.
    grep -rqE "^namespace troupe::$own::detail" "$room" || names+='|(^|[^:A-Za-z_0-9])detail::'
    while IFS=: read -r file line what; do
      what=$(grep -oE "$names" <<<"${what%%//*}" | head -1) || continue
      [[ $what != *"$own"::internal:: ]] || continue
      offence "$file:$line: ${what#[^a-z]} is private to another room"
    done < <(grep -rnE --include='*.hpp' --include='*.cpp' --include='*.cu' --include='*.cuh' "$names" "$room" || true)
  done
}

room_of() {
  case $1 in
    runtime/base/*) echo base ;;
    runtime/cli/*) echo cli ;;
    *) echo "${1%%/*}" ;;
  esac
}

check_include() {
  local file=$1 line=$2 what=$3 room target target_room package
  room=$(room_of "$file")
  if [[ $what =~ $third_party ]]; then
    if [[ $file == *.hpp && $file != */internal/* && $file != tests/* ]]; then
      offence "$file:$line: third-party header $what outside a .cpp or an internal/ header"
    fi
    return
  fi
  [[ $what == '"'* ]] || return 0
  target=${what//\"/}
  if [[ $target != troupe/* ]]; then
    if [[ $file == *.hpp && $room != tests && $room != examples ]]; then
      offence "$file:$line: $what: includes read \"troupe/<room>/x.hpp\""
    fi
    return
  fi
  target=${target#troupe/}
  [[ $target == */* ]] || target=runtime/$target
  target_room=$(room_of "$target")
  check_layers "$file" "$line" "$target"
  check_stranger "$file" "$line" "$target"
  # Only the umbrella header includes every room.
  if [[ $file != runtime/troupe.hpp && $target_room != base && " ${below[$room]} " != *" $target_room "* ]]; then
    offence "$file:$line: $room may not include $target_room ($what)"
  fi
  if [[ $target == runtime/troupe.hpp && $room != examples && $room != tests && $room != tune && $room != train ]]; then
    offence "$file:$line: the umbrella is for users of the library"
  fi
  if [[ $target == */internal/* ]]; then
    package=${target%%/internal/*}/
    # Control's messages are frames of the same form and are encoded by the same code.
    [[ $package != runtime/wire/ || $file != runtime/control/* ]] || package=runtime/control/
    if [[ $room != tests && $file != "$package"* ]]; then
      offence "$file:$line: $what belongs to ${package%/} alone"
    elif [[ $file == *.hpp && $file != */internal/* && $room != tests ]]; then
      offence "$file:$line: $what must not be seen outside .cpp and internal/ headers"
    fi
  fi
}

count=0
while IFS=: read -r file line what; do
  check_include "$file" "$line" "$what"
  count=$((count + 1))
done < <(sources hpp cpp cu cuh | tr '\n' '\0' | xargs -0 -r grep -HnoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*("[^"]+"|<[^>]+>)' |
  sed -E 's/^([^:]*:[0-9]+:)[[:space:]]*#[[:space:]]*include[[:space:]]*/\1/')
check_names
finish "$count includes"
