#!/usr/bin/env bash
# Runs one stage on a borrowed machine with a device: `./dev gpu --stage NAME --out DIR`. Each test has a limit, and the
# tests after one that fails still run. DIR gets NAME.jsonl and NAME.log. The first line of NAME.jsonl holds card, driver,
# commit and library versions; NAME.log holds all output.
# usage: stages.sh probe|twins|golden|nccl|bench --build DIR --out DIR [--commit ID] [--dry-run | --device cpu|stand-in]
# --dry-run starts no test that needs a device. It checks that all programs are there, and tries the tools.
# --device cpu runs golden, nccl and bench on the CPU with few and small sizes, to see that their programs work. --device
# stand-in runs golden and nccl on the device of tests/device with a library in NCCL's place; its ranks are threads.
# The limits of a stage add up to less than the 600 s of a command on a borrowed machine.
# exit codes: 0 all passed, or there is no device; 1 some did not, the probe gave no answer, or a driver is there that finds
# no device; 2 wrong usage.
set -uo pipefail
export LC_ALL=C.UTF-8

say() { printf 'gpu: %s\n' "$*" >&2; }
usage() { say "$1"; sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2; }

stage=${1:-} build='' out='' commit=unknown device=cuda dry=no
(($# == 0)) || shift
while (($# > 0)); do
  case $1 in
    --build | --out | --commit | --device)
      (($# >= 2)) || usage "$1 needs a value"
      declare "${1#--}=$2"
      shift
      ;;
    --dry-run) dry=yes ;;
    *) usage "no option '$1'" ;;
  esac
  shift
done
case $stage in
  probe | twins | golden | nccl | bench) ;;
  *) usage "no stage '$stage'" ;;
esac
[[ -n $build && -n $out ]] || usage '--build and --out are needed'
case $device in
  cuda) ;;
  cpu | stand-in) [[ $stage != probe && $stage != twins ]] || usage "stage '$stage' is about the device itself" ;;
  *) usage "no device '$device': cuda, cpu or stand-in" ;;
esac
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$out" || exit 2
lines=$out/$stage.jsonl log=$out/$stage.log
bin=$build/bin
# the libraries that the plug-in links may lie elsewhere than on the machine that built it
toolkit=${CUDA_HOME:-/usr/local/cuda}/lib64
[[ ! -d $toolkit ]] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$toolkit
[[ ! -e $build/lib/libtroupe_cuda.so ]] || export TROUPE_CUDA_PLUGIN=$build/lib/libtroupe_cuda.so

# text VALUE: prints it as a JSON string
text() { printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"; }
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$libraries"; }

failed=0 count=0
libraries=$(timeout 60 "$bin/probe" --libraries 2>"$log")
answered=$?
if [[ $libraries != *'"card":'* ]]; then   # without NCCL the probe still prints the line, and ends with 1
  say "the probe gave no answer: $bin/probe ended with $answered, see $log"
  [[ $dry == yes ]] || exit 1
  failed=1
fi
card=$(field card)
nccl=$(field nccl)
driver=$(sed -n '1s/.*Module *\([0-9.]*\) .*/\1/p' "${TROUPE_GPU_DRIVER:-/proc/driver/nvidia/version}" 2>/dev/null)
[[ $device == cuda ]] || card=$device
[[ $device != stand-in ]] || export TROUPE_NCCL=$build/lib/libfake_nccl_ranks.so
if [[ -z $card && -n $driver && $dry == no ]]; then
  say "the driver $driver is there, but gives no device (cuInit); stage '$stage' was not run"
  exit 1
fi
if [[ -z $card && $dry == no ]]; then
  say "there is no device on this machine, so stage '$stage' was not run; --dry-run checks what can be checked without"
  exit 0
fi
printf '{"stage":%s,"card":%s,"driver":%s,"driver_cuda":%s,"runtime":%s,"nccl":%s,"commit":%s,"date":%s,"dry_run":%s}\n' \
  "$(text "$stage")" "$(text "$card")" "$(text "${driver:-}")" "$(text "$(field driver_cuda)")" "$(text "$(field runtime)")" \
  "$(text "$nccl")" "$(text "$commit")" "$(text "$(date -u +%FT%TZ)")" "$([[ $dry == yes ]] && echo true || echo false)" >"$lines"

record() {  # NAME RESULT CODE SECONDS LIMIT LAST_LINE
  printf '{"test":%s,"result":%s,"code":%d,"seconds":%s,"limit":%d,"last":%s}\n' \
    "$(text "$1")" "$(text "$2")" "$3" "$4" "$5" "$(text "$6")" >>"$lines"
  say "$stage: $1: $2"
}

# matches COMMAND...: the test filter of the command leaves some of kernels_test's twins
matches() {
  local word filter=() names
  for word in "$@"; do [[ $word != --gtest_filter=* ]] || filter=("$word"); done
  names=$("$bin/kernels_test" --gtest_list_tests "${filter[@]}" 2>>"$log")
  [[ $names == *'  Agrees'* ]]
}

# try NAME LIMIT COMMAND...: runs the command within LIMIT seconds (TROUPE_GPU_LIMIT lowers the limit)
try() {
  local name=$1 limit=$2 output code=0 begun result last
  shift 2
  count=$((count + 1))
  if [[ $dry == yes ]]; then
    local word
    for word in "$@"; do
      [[ $word != "$bin"/* && $word != "$here"/*.py || -x $word ]] || { record "$name" missing 127 0 "$limit" "$word"; failed=1; return; }
    done
    if [[ " $* " == *" $bin/kernels_test "* ]] && ! matches "$@"; then
      record "$name" missing 0 0 "$limit" 'the filter matches no twin'
      failed=1
      return
    fi
    record "$name" dry 0 0 "$limit" ''
    return
  fi
  ((limit <= ${TROUPE_GPU_LIMIT:-$limit})) || limit=$TROUPE_GPU_LIMIT
  output=$(mktemp)
  begun=$(date +%s%N)
  printf '\n=== %s: %s\n' "$name" "$*" >>"$log"
  timeout -k 5 "$limit" "$@" >"$output" 2>&1 || code=$?
  cat "$output" >>"$log"
  # copies the measurements that the program printed, one JSON object a line
  sed -n "s/^{\(\"operation\":.*}\)$/{\"test\":$(text "$name" | sed 's/[&/\\]/\\&/g'),\1/p" "$output" >>"$lines"
  last=$(grep -v '^$' "$output" | sed -n '$p')
  case $code in
    0) if grep -q '^\[  SKIPPED \]' "$output"; then result=skipped; else result=passed; fi ;;
    77) result=skipped ;;
    124 | 137) result=late ;;
    *) result=failed ;;
  esac
  [[ $result == passed ]] || failed=1
  record "$name" "$result" "$code" "$(awk -v ns=$(($(date +%s%N) - begun)) 'BEGIN { printf "%.1f", ns / 1e9 }')" "$limit" "$last"
  rm -f "$output"
}

newest() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | sed -n '$p') == "$1" ]]; }  # newest A B: A is not older than B

# on_ranks NAME LIMIT [OPTION OF ranks...] RANKS PROGRAM ARGUMENT...: one process for each rank; on the stand-in, one
# thread
on_ranks() {
  local name=$1 limit=$2 launch=()
  shift 2
  while [[ $1 == --* ]]; do
    launch+=("$1")
    [[ $1 != --dies ]] || { launch+=("$2"); shift; }
    shift
  done
  if [[ $device == stand-in ]]; then
    [[ " ${launch[*]} " == *' --dies '* ]] || try "$name" "$limit" "$2" "${@:3}" --device "$device" --threads "$1"
    return
  fi
  try "$name" "$limit" "$bin/ranks" --deadline $((limit - 5)) "${launch[@]}" "$@" --device "$device"
}
golden() { on_ranks "$1" "$2" "$3" "$bin/golden" --data "$here/../golden" "${@:4}"; }

case $stage in
  probe)
    try libraries 30 "$bin/probe" --libraries
    try two_ranks 150 "$bin/ranks" --deadline 140 2 "$bin/probe"   # whether two ranks can share the device at all
    try one_rank 60 "$bin/ranks" --deadline 50 1 "$bin/probe"
    try two_ranks_synchronized 150 "$bin/ranks" --deadline 140 --synchronize 2 "$bin/probe"
    if [[ -n $nccl ]] && newest "$nccl" 2.30.3; then
      try two_ranks_multi_rank_gpu 100 "$bin/ranks" --deadline 90 --multi-rank-gpu 2 "$bin/probe"
    fi
    ;;
  twins)
    # CudaLoader.SaysWhyThereIsNoDevice needs a machine without a device, so it is left out.
    try kernels 150 "$bin/kernels_test" --gtest_filter='*Cuda*-CudaLoader.SaysWhyThereIsNoDevice'
    if [[ $dry == yes ]] || command -v compute-sanitizer >/dev/null; then
      # One operation of each kind of kernel. Under the tool all operations together do not fit a borrowed machine's 600
      # s.
      small=''
      for operation in gelu layer_norm cross_entropy rope dropout max_pool transpose gemm attention embedding adamw squares; do
        small+=":*/Cuda.*/$operation"
      done
      try memcheck 240 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/kernels_test" --gtest_filter="CudaMemory.*$small"
    fi
    ;;
  golden)
    golden plain 40 1
    golden recompute_selective 30 1 --recompute selective
    golden recompute_full 30 1 --recompute full
    golden micro_batches 30 1 --micro 2
    golden offload 30 1 --offload
    golden dp2 45 2 --mesh dp=2
    golden zero1 45 2 --mesh dp=2 --zero 1
    golden zero2 45 2 --mesh dp=2 --zero 2 --micro 2
    golden zero3 45 2 --mesh dp=2 --zero 3 --recompute full
    golden tp2 45 2 --mesh tp=2
    golden tp2_sequence 45 2 --mesh tp=2 --sequence
    golden pp2 45 2 --mesh pp=2 --micro 4
    golden bf16 30 1 --bf16
    [[ $device != cpu ]] || golden mesh 60 8 --mesh dp=2,tp=2,pp=2 --zero 1 --micro 2
    on_ranks killed_rank 40 --dies 1 2 "$bin/golden" --data "$here/../golden" --mesh dp=2 --zero 1 --dies 1
    ;;
  bench)
    python=${TROUPE_PYTHON:-python3}
    size=gpt2
    [[ $device == cuda ]] || size=tiny
    [[ $device != stand-in ]] || usage 'a stand-in has no speed'
    try cases 20 "$bin/device_bench" kernels --list
    try kernels_f32 80 "$bin/device_bench" kernels --device "$device" --size "$size" --type f32
    try kernels_bf16 80 "$bin/device_bench" kernels --device "$device" --size "$size" --type bf16
    for type in bf16 tf32 f32; do   # compiling takes torch a minute
      try "step_$type" 120 "$python" -W ignore "$here/bench_torch.py" "$bin/device_bench" --device "$device" --size "$size" --type "$type"
    done
    ;;
  nccl)
    size=()
    [[ $device == cuda ]] || size=(--largest 65000)
    on_ranks one_rank 60 1 "$bin/collectives" "${size[@]}"
    on_ranks two_ranks 90 2 "$bin/collectives" "${size[@]}"
    if [[ $device == cuda ]]; then
      on_ranks two_ranks_synchronized 90 --synchronize 2 "$bin/collectives"
      if [[ -n $nccl ]] && newest "$nccl" 2.30.3; then
        on_ranks two_ranks_multi_rank_gpu 90 --multi-rank-gpu 2 "$bin/collectives"
      fi
    fi
    on_ranks abort 45 2 "$bin/collectives" --then abort
    on_ranks mismatch 45 2 "$bin/collectives" --then mismatch
    on_ranks killed_rank 45 --dies 1 2 "$bin/collectives" --then die --dies 1
    ;;
esac

if [[ $dry == yes ]]; then   # tries the tools themselves
  "$bin/ranks" --deadline 20 2 true >>"$log" 2>&1 || { record ranks failed 1 0 20 'ranks cannot run two processes'; failed=1; }
  [[ -n $nccl ]] || say "$stage: NCCL is not on this machine"
fi
say "$stage: $count tests, see $lines"
exit "$failed"
