#!/usr/bin/env bash
# Includes go from upper rooms to lower ones only, and stay out of other packages' internals. Headers that users include
# use the standard library and troupe alone. The rooms above the runtime use only what users may use.
#   base <- objectstore <- runtime <- actors <- train <- tune, kernels on base, actors on kernels; floors may be skipped.
#   runtime/cli is the command line, above tune.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The rooms that each room may include. Every room may include runtime/base.
below='base:
objectstore: objectstore
kernels: kernels
runtime: runtime objectstore
cli: cli tune train kernels actors runtime objectstore
actors: actors kernels runtime objectstore
train: train kernels actors runtime objectstore
tune: tune train actors runtime objectstore
examples: train tune kernels actors runtime objectstore
tests: tests cli train tune kernels actors runtime objectstore'

# The layers of runtime/, from below. A folder may include folders with lower numbers, and of its own layer only those in
# `beside`.
layers='base=0 ring=1 wire=1 net=1 observe=1 storage=1 os=2 engine=3 scheduling=4 front=5 detail=5 client=6 control=6 agent=7 boot=8 cli=9'
beside='detail=front front=detail'

# Rooms that use the other rooms as a user does: only public headers, and no name of `detail` or of another room's
# `internal`.
strangers='kernels actors train tune examples'
# The namespace of a room's code below troupe, where it differs from the room's name.
namespaces='actors=collective'

export below layers beside strangers namespaces
while read -r line; do
  if [[ $line == *:* ]]; then offence "$line"; else count=$line; fi
done < <(sources hpp cpp cu cuh | awk '
  # Splits pairs "name=value" into an array.
  function pairs(text, array,    i, n, words, at) {
    n = split(text, words, " ")
    for (i = 1; i <= n; ++i) {
      at = index(words[i], "=")
      array[substr(words[i], 1, at - 1)] = substr(words[i], at + 1)
    }
  }
  function starts(text, prefix) { return substr(text, 1, length(prefix)) == prefix }
  function first_folder(path) { return index(path, "/") ? substr(path, 1, index(path, "/") - 1) : path }
  function room_of(path) {
    if (starts(path, "runtime/base/")) return "base"
    if (starts(path, "runtime/cli/")) return "cli"
    return first_folder(path)
  }
  # Returns the layer of a file of runtime/, and nothing for other files.
  function layer_of(path) {
    if (!starts(path, "runtime/")) return ""
    path = substr(path, 9)
    return index(path, "/") ? first_folder(path) : "front"
  }
  function offence(file, line, sentence) { printf "%s:%s: %s\n", file, line, sentence }

  function check_layers(file, line, target,    from, to) {
    from = layer_of(file)
    to = layer_of(target)
    if (from == "" || to == "" || from == to || target == umbrella || file == umbrella) return
    if (!(from in layer) || !(to in layer))
      offence(file, line, "runtime/" from " or runtime/" to " has no layer in tests/checks/includes.sh")
    else if (layer[to] + 0 >= layer[from] + 0 && beside[from] != to)
      offence(file, line, "runtime/" from " may not include runtime/" to ", which stands above it or beside it")
  }
  function check_stranger(file, line, target,    folder) {
    folder = first_folder(file)
    if (!(folder in stranger) || starts(target, folder "/")) return
    if (starts(target, "runtime/base/") || target == "objectstore/objectstore.hpp") return
    if (folder == "tune" && starts(target, "runtime/storage/")) return  # the store of a study
    if (target ~ /^runtime\/.*\// || starts(target, "objectstore/") || target ~ /\/detail\//)
      offence(file, line, folder " includes what users include of other rooms, not \"troupe/" target "\"")
  }
  function check_internal(file, line, what, target, tested,    package) {
    package = substr(target, 1, index(target, "/internal/"))
    # The messages of control are frames of the same form and are encoded by the same code.
    if (package == "runtime/wire/" && starts(file, "runtime/control/")) package = "runtime/control/"
    if (tested) return
    if (!starts(file, package))
      offence(file, line, what " belongs to " substr(package, 1, length(package) - 1) " alone")
    else if (file ~ /\.hpp$/ && file !~ /\/internal\//)
      offence(file, line, what " must not be seen outside .cpp and internal/ headers")
  }
  function check_include(file, line, what,    room, target, target_room) {
    room = room_of(file)
    if (what ~ third_party || what ~ third_party_header || what ~ /\.capnp\.h[">]$/) {
      if (file ~ /\.hpp$/ && file !~ /\/internal\// && !starts(file, "tests/"))
        offence(file, line, "third-party header " what " outside a .cpp or an internal/ header")
      return
    }
    if (what !~ /^"/) return
    target = substr(what, 2, length(what) - 2)
    if (!starts(target, "troupe/")) {
      if (file ~ /\.hpp$/ && room != "tests" && room != "examples")
        offence(file, line, what ": includes read \"troupe/<room>/x.hpp\"")
      return
    }
    target = substr(target, 8)
    if (!index(target, "/")) target = "runtime/" target
    target_room = room_of(target)
    check_layers(file, line, target)
    check_stranger(file, line, target)
    # Only the umbrella header includes every room.
    if (file != umbrella && target_room != "base" && !((room, target_room) in allowed))
      offence(file, line, room " may not include " target_room " (" what ")")
    if (target == umbrella && room !~ /^(examples|tests|tune|train)$/)
      offence(file, line, "the umbrella is for users of the library")
    if (index(target, "/internal/")) check_internal(file, line, what, target, room == "tests")
  }

  # Finds a name that is private to another room. A private name that a public header declares can be used without an
  # include. In a room without a `detail` of its own, an unqualified `detail` is that of the runtime.
  function check_name(file, line, text,    room, own, names) {
    room = first_folder(file)
    own = room in namespace ? namespace[room] : room
    names = "(^|[^A-Za-z_0-9])(troupe::detail::|(collective|kernels|train|tune|objectstore|client|agent|control)::internal::)"
    if (!(room in own_detail)) names = names "|(^|[^:A-Za-z_0-9])detail::"
    if (!match(text, names)) return
    text = substr(text, RSTART, RLENGTH)
    sub(/^[^a-z]/, "", text)
    if (text != own "::internal::") offence(file, line, text " is private to another room")
  }

  BEGIN {
    umbrella = "runtime/troupe.hpp"
    third_party = "^<(caf|capnp|kj|rocksdb|boost|spdlog|fmt|nlohmann|toml[+][+]|CLI|openssl|gtest|gmock|rapidcheck|benchmark)/"
    third_party_header = "^<(zmq|nccl|cublas|cuda|cudnn|xxhash|lz4|zstd|rapidcheck|cblas|dnnl)[a-zA-Z_0-9]*(\\.h|\\.hpp)?>"
    pairs(ENVIRON["layers"], layer)
    pairs(ENVIRON["beside"], beside)
    pairs(ENVIRON["namespaces"], namespace)
    n = split(ENVIRON["strangers"], words, " ")
    for (i = 1; i <= n; ++i) stranger[words[i]]
    rows = split(ENVIRON["below"], row, "\n")
    for (r = 1; r <= rows; ++r) {
      n = split(row[r], words, ":? +|:$")
      for (i = 2; i <= n; ++i) allowed[words[1], words[i]]
    }

    while ((getline file) > 0) {
      room = first_folder(file)
      own = room in namespace ? namespace[room] : room
      for (number = 1; (getline line < file) > 0; ++number) {
        if (index(line, "include") && line ~ /^[[:space:]]*#[[:space:]]*include[[:space:]]*("[^"]+"|<[^>]+>)/) {
          ++includes
          what = line
          sub(/^[[:space:]]*#[[:space:]]*include[[:space:]]*/, "", what)
          match(what, /^("[^"]+"|<[^>]+>)/)
          check_include(file, number, substr(what, 1, RLENGTH))
        }
        if (room in stranger && index(line, "::")) {
          if (starts(line, "namespace troupe::" own "::detail")) own_detail[room]
          sub(/\/\/.*/, "", line)
          if (line ~ /(detail|internal)::/) {
            ++candidates
            name_file[candidates] = file
            name_line[candidates] = number
            name_text[candidates] = line
          }
        }
      }
      close(file)
    }
    for (i = 1; i <= candidates; ++i) check_name(name_file[i], name_line[i], name_text[i])
    print includes + 0
  }')
finish "$count includes"
