#!/usr/bin/env bash
# Does what torchrun does for a program on one host: starts it once for each rank, with torchrun's variables. When a rank
# fails, it ends the others. Exit code: that of the first rank that failed, or 0.
# usage: torchrun.sh RANKS PROGRAM [argument...]
set -uo pipefail
world=$1
shift
# Finds a port on which nothing listens, outside the range of ports that the system assigns itself.
for ((tries = 0; tries < 100; ++tries)); do
  port=$((20000 + RANDOM % 10000))
  (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
done
declare -A running=()
for ((rank = 0; rank < world; ++rank)); do
  RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$world GROUP_RANK=0 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT=$port TORCHELASTIC_RUN_ID=$$ TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=False "$@" &
  running[$!]=$rank
done
code=0
while ((${#running[@]} > 0)); do
  wait -n -p pid "${!running[@]}"
  ended=$?
  unset "running[$pid]"
  if ((ended != 0 && code == 0)); then
    code=$ended
    kill "${!running[@]}" 2>/dev/null
  fi
done
exit "$code"
