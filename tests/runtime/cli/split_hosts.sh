#!/usr/bin/env bash
# Tests two hosts, in network namespaces, that both reach the head but not each other; control receives heartbeats of all
# three nodes. Checks what `troupe status` reports of the two, runs a program beside them, and checks again after the link
# between them is opened.
# split_hosts.sh TROUPE PROGRAM; 77: this machine permits no namespaces.
set -euo pipefail
troupe=$1 program=$2

skip() { echo "skipped: $1"; exit 77; }
fail() { echo "split_hosts: $1" >&2; exit 1; }

if [[ ${SPLIT_HOSTS_INSIDE:-} != 1 ]]; then
  command -v ip > /dev/null && command -v nsenter > /dev/null || skip "it needs ip (iproute2) and nsenter"
  unshare --net true 2> /dev/null || skip "network namespaces are not permitted here"
  SPLIT_HOSTS_INSIDE=1 exec unshare --net "$0" "$@"
fi

folder=$(mktemp -d)
declare -A space
for host in a b; do
  unshare --net sleep 170 &
  space[$host]=$!
done
on() {  # HOST COMMAND...
  local host=$1
  shift
  if [[ $host == head ]]; then XDG_RUNTIME_DIR=$folder/head "$@"; return; fi
  XDG_RUNTIME_DIR=$folder/$host nsenter --target "${space[$host]}" --net "$@"
}
end() {
  for host in a b head; do on $host "$troupe" stop --all > /dev/null 2>&1 || true; done
  kill "${space[@]}" 2> /dev/null || true
  rm -rf "$folder"
}
trap end EXIT
mkdir -m 700 "$folder"/{head,a,b}

own=$(readlink /proc/self/ns/net)
for host in a b; do
  for ((i = 0; i < 100; i++)); do   # until it has its namespace
    [[ $(readlink "/proc/${space[$host]}/ns/net") != "$own" ]] && break
    sleep 0.05
  done
done
ip link set lo up
ip address add 10.77.0.1/32 dev lo
net=1
for host in a b; do
  ip link add "to-$host" type veth peer name to-head netns "${space[$host]}" 2> /dev/null \
    || skip "no virtual links are permitted here"
  ip address add 10.77.$net.1/24 dev "to-$host"
  ip link set "to-$host" up
  on $host ip link set lo up
  on $host ip address add 10.77.$net.2/24 dev to-head
  on $host ip link set to-head up
  on $host ip route add 10.77.0.1 via 10.77.$net.1
  on $host ip route add unreachable 10.77.$((3 - net)).0/24
  net=2
done

on head "$troupe" start --head --listen 10.77.0.1 --join-tokens 2 --cpus 1 --memory 64MiB --json > "$folder/head.json"
token() { sed -n '/"join_tokens"/,/\]/p' "$folder/head.json" | grep -o '"[^"]*"' | tr -d '"' | sed -n "$((1 + $1))p"; }
on a "$troupe" start --address "$(token 1)" --cpus 1 --memory 64MiB --json > "$folder/a.json"
on b "$troupe" start --address "$(token 2)" --cpus 1 --memory 64MiB --json > "$folder/b.json"

unreachable() { on head "$troupe" status --json | grep -c '"state": "unreachable"' || true; }
await() {  # COUNT SECONDS
  for ((i = 0; i < 5 * $2; i++)); do
    [[ $(unreachable) == "$1" ]] && return
    sleep 0.2
  done
  fail "not $1 unreachable nodes within $2 s: $(on head "$troupe" status)"
}
await 2 30
on head "$troupe" status > "$folder/status"
[[ $(grep -c 'unreachable from 1 node (' "$folder/status") == 2 ]] || fail "$(cat "$folder/status")"
for address in 10.77.1.2 10.77.2.2; do
  grep -q "tcp://$address:.*--listen.*firewall" "$folder/status" || fail "no hint for $address: $(cat "$folder/status")"
done
[[ $(on head "$troupe" status --json | grep -c '"state": "alive"') == 1 ]] || fail "$(cat "$folder/status")"

# Work of a's driver goes where a's driver can send it, and all of it ends.
[[ $(on a timeout 60 "$troupe" run "$program" nodes 2> "$folder/said") == 2 ]] || fail "$(cat "$folder/said")"

# A gang over all three says which ranks do not reach each other, and where.
started=$SECONDS
if on head timeout 60 "$troupe" run "$program" gang 3 100 10 0 > "$folder/gang" 2> "$folder/said"; then
  fail "a gang trained over hosts that do not reach each other: $(cat "$folder/gang")"
fi
((SECONDS - started <= 10)) || fail "it took $((SECONDS - started)) s to say: $(cat "$folder/said")"
grep -q 'rank [12] .*rank [12] .*10\.77\.[12]\.2:' "$folder/said" || fail "it names no address: $(cat "$folder/said")"

# Opens the link between the two hosts.
ip link add a-b netns "${space[a]}" type veth peer name b-a netns "${space[b]}"
on a ip link set a-b up
on b ip link set b-a up
on a ip route del unreachable 10.77.2.0/24
on b ip route del unreachable 10.77.1.0/24
on a ip route add 10.77.2.2 dev a-b src 10.77.1.2
on b ip route add 10.77.1.2 dev b-a src 10.77.2.2
await 0 60
[[ $(on a timeout 60 "$troupe" run "$program" nodes 2> "$folder/said") == 3 ]] || fail "$(cat "$folder/said")"
echo "split hosts: right"
