#!/usr/bin/env bash
# Tests the README's recipe for two hosts, in two network namespaces: a head with --listen, another host that joins by its
# token, and a program that runs on both. two_hosts.sh TROUPE PROGRAM; 77: this machine permits no namespaces.
set -euo pipefail
troupe=$1 program=$2

skip() { echo "skipped: $1"; exit 77; }
fail() { echo "two_hosts: $1" >&2; exit 1; }

if [[ ${TWO_HOSTS_INSIDE:-} != 1 ]]; then
  command -v ip > /dev/null && command -v nsenter > /dev/null || skip "it needs ip (iproute2) and nsenter"
  unshare --net true 2> /dev/null || skip "network namespaces are not permitted here"
  TWO_HOSTS_INSIDE=1 exec unshare --net "$0" "$@"
fi

folder=$(mktemp -d)
unshare --net sleep 120 &   # the other host's network
other=$!
on_other() { XDG_RUNTIME_DIR=$folder/other nsenter --target "$other" --net "$@"; }
on_head() { XDG_RUNTIME_DIR=$folder/head "$@"; }
end() {
  on_other "$troupe" stop --all > /dev/null 2>&1 || true
  on_head "$troupe" stop --all > /dev/null 2>&1 || true
  kill "$other" 2> /dev/null || true
  rm -rf "$folder"
}
trap end EXIT
mkdir -m 700 "$folder/head" "$folder/other"

own=$(readlink /proc/self/ns/net)
for ((i = 0; i < 100; i++)); do   # until it has its namespace
  [[ $(readlink "/proc/$other/ns/net") != "$own" ]] && break
  sleep 0.05
done
ip link add veth-head type veth peer name veth-other netns "$other" 2> /dev/null || skip "no virtual links are permitted here"
ip address add 10.77.0.1/24 dev veth-head
ip link set veth-head up
ip link set lo up
on_other ip address add 10.77.0.2/24 dev veth-other
on_other ip link set veth-other up
on_other ip link set lo up

on_head "$troupe" start --head --listen 10.77.0.1 --join-tokens 2 --cpus 1 --memory 64MiB --json > "$folder/head.json"
token() { sed -n '/"join_tokens"/,/\]/p' "$folder/head.json" | grep -o '"[^"]*"' | tr -d '"' | sed -n "$((1 + $1))p"; }

# A wrong request is refused before it spends the token.
if on_other "$troupe" start --address "$(token 1)" --listen 127.0.0.1 --cpus 1 --memory 64MiB > "$folder/refused" 2>&1; then
  fail "a loopback address was accepted for a node of another host"
fi
grep -q -- '--listen 127.0.0.1' "$folder/refused" || fail "the refusal names no flag: $(cat "$folder/refused")"
grep -q '10.77.0.2' "$folder/refused" || fail "the refusal names no address: $(cat "$folder/refused")"

on_other "$troupe" start --address "$(token 1)" --cpus 1 --memory 64MiB --json > "$folder/other.json"
grep -q '"tcp://10.77.0.2:' "$folder/other.json" || fail "it listens elsewhere: $(cat "$folder/other.json")"

# A program that is started on either host runs on both nodes.
for where in on_head on_other; do
  [[ $($where timeout 60 "$troupe" run "$program" nodes 2> "$folder/said") == 2 ]] \
    || fail "$where: no work on two nodes: $(cat "$folder/said")"
  grep -q 'of 2 nodes' "$folder/said" || fail "$where: $(cat "$folder/said")"
done

# A gang over both hosts. Once the other one is cut off, the next gang begins on the head.
: > "$folder/gang"
on_head "$troupe" run "$program" gang 2 2000 30 3 > "$folder/gang" 2> "$folder/said" &
gang=$!
await_gangs() {  # COUNT SECONDS
  for ((i = 0; i < 20 * $2; i++)); do
    [[ $(grep -c '^gang' "$folder/gang") -ge $1 ]] && return
    sleep 0.05
  done
  fail "not $1 gangs within $2 s: $(cat "$folder/gang" "$folder/said")"
}
await_gangs 1 20
sleep 1   # some steps, with checkpoints
on_other ip link set veth-other down
await_gangs 2 14
wait "$gang" || fail "the gang ended badly: $(cat "$folder/said")"
grep -q '^2000 steps, 1 restarts' "$folder/gang" || fail "$(cat "$folder/gang" "$folder/said")"
grep -q '^gang at step [1-9]' "$folder/gang" || fail "it began anew: $(cat "$folder/gang")"
echo "two hosts: right"
