#!/usr/bin/env bash
# A file that names something of the standard library includes its header, itself or through a header of troupe. Builds
# that precompile the standard library (troupe_precompile in runtime/cmake/rooms.cmake) do not notice a missing include,
# and neither does check.headers. This check knows the headers that are precompiled there.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Text after std::, up to the first space, followed by the headers that declare it.
names='(ranges::)?(sort|stable_sort|find|find_if|any_of|all_of|none_of|count|count_if|min|max|clamp|min_element|max_element|lower_bound|upper_bound|fill|fill_n|copy_n|copy_if|transform|remove_if|reverse|shuffle|binary_search|nth_element|equal|unique|rotate|partition|for_each)[(] algorithm
array array
(atomic|memory_order) atomic
chrono chrono thread mutex condition_variable
condition_variable condition_variable
u?int(8|16|32|64)_t|uintptr_t cstdint cinttypes atomic chrono random
(memcpy|memmove|memset|memcmp|strlen|strcmp|strerror) cstring
deque deque
(function|hash|less|greater|ref|cref|invoke) functional map memory optional string string_view thread unordered_map variant
(multi)?map map
((unique|shared|weak)_ptr|make_unique|make_shared|enable_shared_from_this) memory
(mutex|lock_guard|unique_lock|scoped_lock|once_flag|call_once) mutex condition_variable
(optional|nullopt) optional
(multi)?set set
span span
(string|to_string|stoi|stoul) string filesystem iostream sstream
string_view string_view string
(jthread|thread|this_thread) thread
unordered_map unordered_map
(move|forward|pair|swap|exchange) utility algorithm array deque functional map memory optional set span string tuple unordered_map variant vector
(variant|visit|get_if|holds_alternative|monostate) variant
vector vector'

list=$(mktemp)
trap 'rm -f "$list"' EXIT
sources hpp cpp | grep -Ev '^(examples|tests)/' >"$list" || true
while read -r header; do
  grep -Eq " $header( |$)" <<<"$names" || offence "runtime/cmake/rooms.cmake:1: <$header> is precompiled, but not in this check"
done < <(precompiled | tr -d '<>')
while read -r line; do offence "$line"; done < <(NAMES=$names LIST=$list awk '
  # Returns whether the file, or a header of troupe that it includes, includes one of these headers.
  function reaches(file, wanted,    i) {
    if (visited[file]++) return 0
    for (i = 1; i <= includes[file]; ++i)
      if (include[file, i] in wanted || reaches(include[file, i], wanted)) return 1
    return 0
  }
  function look(file,    kind, i, words, n, wanted) {
    for (kind = 1; kind <= kinds; ++kind) {
      if (!((file, kind) in used)) continue
      split("", wanted)
      n = split(headers[kind], words, " ")
      for (i = 1; i <= n; ++i) wanted[words[i]]
      split("", visited)
      if (!reaches(file, wanted)) printf "%s:%s: nobody includes <%s>\n", file, used[file, kind], words[1]
    }
  }
  BEGIN {
    kinds = split(ENVIRON["NAMES"], lines, "\n")
    for (k = 1; k <= kinds; ++k) {
      pattern[k] = "std::(" substr(lines[k], 1, index(lines[k], " ") - 1) ")([^a-z_0-9]|$)"
      sub(/\[\(\]\)\(.*/, "[(])", pattern[k])
      headers[k] = substr(lines[k], index(lines[k], " ") + 1)
    }
    while ((getline file < ENVIRON["LIST"]) > 0) {
      files[++count] = file
      for (number = 1; (getline line < file) > 0; ++number) {
        if (line ~ /^ *# *include/) {
          beside = line ~ /"/
          sub(/^ *# *include *["<]/, "", line)
          sub(/[">].*/, "", line)
          if (sub(/^troupe\//, "", line)) line = (line ~ /\// ? "" : "runtime/") line
          else if (beside) line = substr(file, 1, match(file, /[^\/]*$/) - 1) line
          include[file, ++includes[file]] = line
        } else if (line ~ /std::/) {
          sub(/\/\/.*/, "", line)
          for (k = 1; k <= kinds; ++k)
            if (!((file, k) in used) && line ~ pattern[k]) used[file, k] = number
        }
      }
      close(file)
    }
    for (i = 1; i <= count; ++i) look(files[i])
  }')
finish "$(wc -l <"$list") files"
