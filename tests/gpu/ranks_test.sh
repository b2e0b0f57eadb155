#!/usr/bin/env bash
# Tests `ranks` with programs that need no device.
# usage: ranks_test.sh RANKS
set -euo pipefail
ranks=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'ranks: %s\n' "$*" >&2; exit 1; }

# expect CODE WORDS ARGUMENT...: requires that `ranks` ends with this code within 20 s and prints the words.
expect() {
  local wanted=$1 words=$2 code=0
  shift 2
  timeout 20 "$ranks" "$@" >"$work/out" 2>&1 || code=$?
  [[ $code == "$wanted" ]] || { cat "$work/out"; fail "'$*' ended with $code instead of $wanted"; }
  grep -qF -- "$words" "$work/out" || { cat "$work/out"; fail "'$*' does not say '$words'"; }
}
ended() { ! grep -qs '^State:\s[^ZX]' "/proc/$1/status"; }
gone() {  # gone FILE: the process whose id the file holds ends within 10 s of its SIGKILL
  local pid until=$((SECONDS + 10))
  pid=$(<"$1")
  until ended "$pid"; do
    ((SECONDS < until)) || fail "process $pid still runs"
    read -rt 0.01 <> <(:) || true
  done
}
all_of() { env | grep -E '^(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|NCCL_[A-Z0-9_]*|TROUPE_NCCL_SYNCHRONIZE)='; }
export -f all_of

# the environment of each rank, as the comment of ranks.cpp describes it
expect 0 'rank1' 2 bash -c 'all_of >"$0/env.$RANK"; echo "$TROUPE_NCCL_ID $MASTER_PORT" >"$0/same.$RANK"; echo $NCCL_HOSTID' "$work"
sort >"$work/wanted" <<'TEXT'
LOCAL_RANK=1
LOCAL_WORLD_SIZE=2
MASTER_ADDR=127.0.0.1
NCCL_ALGO=Ring
NCCL_HOSTID=rank1
NCCL_IB_DISABLE=1
NCCL_MAX_CTAS=2
NCCL_NET=Socket
NCCL_P2P_DISABLE=1
NCCL_SHM_DISABLE=1
NCCL_SOCKET_IFNAME=lo
RANK=1
WORLD_SIZE=2
TEXT
diff "$work/wanted" <(sort "$work/env.1") || fail 'the environment of a rank'
cmp "$work/same.0" "$work/same.1" || fail 'the ranks do not share an id file and a port'
[[ ! -e $(cut -d' ' -f1 "$work/same.0") && ! -e $(dirname "$(cut -d' ' -f1 "$work/same.0")") ]] || fail 'its folder is left'
expect 0 'TROUPE_NCCL_SYNCHRONIZE=1' --synchronize 2 bash -c all_of
expect 0 'NCCL_MULTI_RANK_GPU_ENABLE=1' --multi-rank-gpu 2 bash -c 'all_of; [[ -z ${NCCL_HOSTID:-} && -z ${NCCL_P2P_DISABLE:-} ]]'
expect 0 'RANK=0' 1 bash -c 'all_of; [[ -z ${NCCL_HOSTID:-} && -z ${NCCL_P2P_DISABLE:-} ]]'
NCCL_MAX_CTAS=7 expect 0 'NCCL_MAX_CTAS=7' 2 bash -c all_of
# rank 0 leaves the id, and rank 1 waits for it
expect 0 'the id' 2 bash -c 'if [[ $RANK == 0 ]]; then echo "the id" >"$TROUPE_NCCL_ID.part"; mv "$TROUPE_NCCL_ID.part" "$TROUPE_NCCL_ID"
  else until [[ -e $TROUPE_NCCL_ID ]]; do read -rt 0.01 <> <(:) || true; done; cat "$TROUPE_NCCL_ID"; fi'

# a rank that fails ends the others
begun=$SECONDS
expect 7 'rank 1 ended with 7' --grace 0.1 3 bash -c '[[ $RANK == 1 ]] && exit 7; echo $$ >"$0/pid.$RANK"; exec sleep 60' "$work"
expect 137 'rank 0 ended with 137' --grace 0.1 2 bash -c '[[ $RANK == 0 ]] && kill -9 $$; exec sleep 60'
((SECONDS - begun < 15)) || fail 'the others were waited for'
for rank in 0 2; do [[ ! -s $work/pid.$rank ]] || gone "$work/pid.$rank"; done
# The other ranks may end by themselves within the grace. The ended rank's process id is kept until then, so that no other
# process gets it and is killed.
# shellcheck disable=SC2016
expect 7 'rank 0 outlived it' --grace 15 2 bash -c '
  if [[ $RANK == 1 ]]; then echo $$ >"$0/dies"; exit 7; fi
  until grep -qs "rank 1 ended with 7" "$0/out"; do read -rt 0.01 <> <(:) || true; done
  grep -q "^State:\sZ" "/proc/$(<"$0/dies")/status" || exit 4
  echo "rank 0 outlived it"; exit 3' "$work"

# with --dies, only the exit codes of the other ranks count
# shellcheck disable=SC2016
expect 0 'rank 0 lives' --dies 1 2 bash -c '[[ $RANK == 1 ]] && kill -9 $$; echo "rank $RANK lives"'
# shellcheck disable=SC2016
expect 9 'rank 0 ended with 9' --dies 1 2 bash -c '[[ $RANK == 1 ]] && kill -9 $$; exit 9'
expect 125 'rank 1 ended with 125' --dies 1 2 true
expect 3 'rank 1 ended with 3' --dies 1 --grace 0.1 2 bash -c 'exit $((RANK * 3))'
expect 2 'there is no rank that --dies names' --dies 2 2 true

# a rank that hangs past the deadline is killed, with the processes that it has started
expect 124 'has not ended within 5 s and is killed' --deadline 5 2 bash -c 'trap "" TERM INT; sleep 60 & echo $! >"$0/child.$RANK"; echo $$ >"$0/hung.$RANK"; wait; sleep 60' "$work"
for name in child.0 child.1 hung.0 hung.1; do gone "$work/$name"; done

# the ranks end with their launcher
"$ranks" 2 bash -c 'echo $$ >"$0/orphan.$RANK.part"; mv "$0/orphan.$RANK.part" "$0/orphan.$RANK"; exec sleep 60' "$work" &
launcher=$!
until [[ -e $work/orphan.0 && -e $work/orphan.1 ]]; do read -rt 0.01 <> <(:) || true; done
kill -TERM "$launcher"
code=0
wait "$launcher" || code=$?
[[ $code == 143 ]] || fail "ended by SIGTERM it gave $code"
for rank in 0 1; do gone "$work/orphan.$rank"; done

expect 127 'No such file or directory' --grace 0.1 2 "$work/no_such_program"
expect 2 'usage: ranks' 2
expect 2 "the number of ranks is 'two'" two true
expect 2 "the number of ranks is '2.5'" 2.5 true
expect 2 "the number of ranks is '65'" 65 true
expect 2 "--deadline is '-1'" --deadline -1 2 true
expect 2 'no option --fast' --fast 2 true
printf 'ranks: all good\n'
