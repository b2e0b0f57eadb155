#!/usr/bin/env bash
# A header whose first comment says "plain state machine" must be one, and so must its .cpp files. They use no thread,
# lock, atomic, socket or clock, and nothing that depends on the order of an unordered container. Therefore the simulator
# can replay them from a seed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

headers='<(thread|mutex|shared_mutex|atomic|condition_variable|future|stop_token|semaphore|latch|barrier|random|ctime|time\.h|pthread\.h|unistd\.h|poll\.h|fcntl\.h|iostream|fstream|sys/(socket|epoll|eventfd|timerfd|time|mman|random)\.h|netinet/[a-z]+\.h|arpa/[a-z]+\.h)>'
calls='\b(steady_now|steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|random_device|this_thread|rand|getrandom)\b'

leading_comment() { awk '/^[[:space:]]*\/\// { print; next } /^[[:space:]]*$/ { if (seen++) exit; next } { exit }' "$1"; }

# Prints the text without comments and string literals; keeps line numbers.
code() { sed -E 's/"([^"\\]|\\.)*"/""/g; s%//.*$%%' "$1"; }

check_unordered() {
  local file=$1 names name hit
  shift
  # The names declared as unordered containers in the header or its .cpp files.
  names=$(cat "$@" | tr '\n' ' ' | grep -oE 'unordered_(multi)?(map|set)<[^;(){}]*>[&[:space:]]+[a-z_0-9]+' | grep -oE '[a-z_0-9]+$' | sort -u || true)
  for name in $names; do
    while IFS=: read -r hit _; do
      offence "$file:$hit: iterates the unordered container $name"
    done < <(code "$file" | grep -nE "for[[:space:]]*\([^;]*:[[:space:]]*(this->)?${name}[[:space:]]*\)|\b${name}\.c?begin\(" || true)
  done
}

count=0
while read -r header; do
  leading_comment "$header" | tr '\n' ' ' | sed 's%///* *%%g; s/  */ /g' | grep -qi 'plain state machine' || continue
  count=$((count + 1))
  files=("$header")
  for unit in "${header%.hpp}".cpp "${header%.hpp}"_*.cpp; do  # x_y.cpp belongs to x_y.hpp where that exists
    if [[ -f $unit && ( $unit == "${header%.hpp}.cpp" || ! -f ${unit%.cpp}.hpp ) ]]; then files+=("$unit"); fi
  done
  for file in "${files[@]}"; do
    while IFS=: read -r line what; do
      offence "$file:$line: a plain state machine does not use ${what//[[:space:]]/}"
    done < <(grep -nE "^[[:space:]]*#[[:space:]]*include[[:space:]]*$headers" "$file" || true)
    while IFS=: read -r line what; do
      offence "$file:$line: a plain state machine is told the time and its random numbers: $what"
    done < <(code "$file" | grep -noE "$calls" || true)
    while IFS=: read -r line what; do
      offence "$file:$line: pointers differ from run to run, so they are no keys"
    done < <(code "$file" | grep -nE '\b(map|set)<(const )?[A-Za-z_:]+ ?(const)? ?\*' || true)
    check_unordered "$file" "${files[@]}"
  done
done < <(sources hpp | grep -v '^tests/')
finish "$count cores"
