#!/usr/bin/env bash
# Tests the stages without a device: the dry run of each with the real programs, and a whole run with programs that only
# claim to have a device.
# usage: stages_test.sh BUILD
set -euo pipefail
build=$1
stages=$(dirname "${BASH_SOURCE[0]}")/stages.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'stages: %s\n' "$*" >&2; exit 1; }
run() {  # CODE ARGUMENT...
  local wanted=$1 code=0
  shift
  "$stages" "$@" >"$work/out" 2>&1 || code=$?
  [[ $code == "$wanted" ]] || { cat "$work/out"; fail "'$*' gave $code instead of $wanted"; }
}
has() { grep -qF -- "$2" "$1" || { cat "$1"; fail "${1##*/} does not hold '$2'"; }; }
is_json_lines() {
  python3 -c 'import json, sys
for line in open(sys.argv[1]): assert isinstance(json.loads(line), dict)' "$1" || fail "$1 is not JSON"
}

for stage in probe twins golden nccl bench; do
  if [[ $stage == twins && ! -x $build/bin/kernels_test ]]; then continue; fi   # not every build has all tests
  run 0 "$stage" --build "$build" --out "$work/dry" --commit abc --dry-run
  is_json_lines "$work/dry/$stage.jsonl"
  has "$work/dry/$stage.jsonl" '"commit":"abc"'
done
has "$work/dry/probe.jsonl" '{"test":"two_ranks","result":"dry"'
# the limits of each stage, with its build, must fit one command of ten minutes
python3 - "$work/dry" <<'PY' || fail 'a stage may take longer than a command'
import json, pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("*.jsonl"):
    limits = [row["limit"] for row in map(json.loads, path.read_text().splitlines()) if row.get("result") == "dry"]
    assert limits and sum(limits) <= 550, (path.name, sum(limits))
PY
run 2 probe --build "$build" --out "$work/dry" --device cpu
run 2 golden --build "$build" --out "$work/dry" --device tpu
run 2 everything --build "$build" --out "$work/dry"
run 2 probe --build "$build"
run 2 probe --build "$build" --out "$work/dry" --fast
run 1 probe --build "$work/nothing" --out "$work/dry" --dry-run
has "$work/dry/probe.jsonl" '"result":"missing"'
has "$work/out" 'the probe gave no answer'
run 1 probe --build "$work/nothing" --out "$work/real"
has "$work/out" "the probe gave no answer: $work/nothing/bin/probe ended with 127"

# runs the programs themselves: each must find and name what is wrong
ends() {  # CODE WORDS PROGRAM...
  local wanted=$1 words=$2 code=0
  shift 2
  "$@" >"$work/out" 2>&1 || code=$?
  [[ $code == "$wanted" ]] || { cat "$work/out"; fail "'$*' gave $code instead of $wanted"; }
  has "$work/out" "$words"
}
golden=$(dirname "$stages")/../golden
mkdir "$work/text"
cp "$golden"/tinyshakespeare-65.txt "$work/text"
tr a-y b-z <"$golden/tinyshakespeare-1281.txt" >"$work/text/tinyshakespeare-1281.txt"
ends 1 'losses differ by up to' "$build/bin/golden" --data "$work/text"
ends 1 'the golden text is not in' "$build/bin/golden" --data "$work"
ends 2 '--data is needed' "$build/bin/golden"
ends 2 '--mesh is of 2 ranks, and 1 were started' "$build/bin/golden" --data "$golden" --mesh dp=2
ends 2 "--mesh is 'dp=two'" "$build/bin/golden" --data "$golden" --mesh dp=two
ends 1 'an operation ended well that could not' "$build/bin/ranks" 2 "$build/bin/collectives" --then die --dies 7
ends 2 'no option --fast' "$build/bin/collectives" --fast
ends 2 'the first word is kernels or step' "$build/bin/device_bench" --size tiny

# programs that stand in for the real ones
mkdir -p "$work/fake/bin"
cat >"$work/fake/bin/probe" <<'TEXT'
#!/usr/bin/env bash
[[ ${1:-} != --libraries ]] || echo '{"card":"A \Card","driver_cuda":"13.0","runtime":"13.0","nccl":"2.30.10"}'
TEXT
cat >"$work/fake/bin/ranks" <<'TEXT'
#!/usr/bin/env bash
case " $* " in
  *' --synchronize '*) exec sleep 60 ;;
  *' --multi-rank-gpu '*) echo '[  SKIPPED ] all of it' ;;
  *' 1 '*) echo 'it said "no"'; exit 3 ;;
  *) echo '{"operation":"all_reduce","ranks":2,"bytes":4,"ms":1.5}' ;;
esac
TEXT
chmod +x "$work/fake/bin/"*
TROUPE_GPU_LIMIT=5 run 1 probe --build "$work/fake" --out "$work/real" --commit abc
lines=$work/real/probe.jsonl
is_json_lines "$lines"
has "$lines" '"card":"A \\Card"'
has "$lines" '{"test":"two_ranks","operation":"all_reduce","ranks":2,"bytes":4,"ms":1.5}'
has "$lines" '{"test":"two_ranks","result":"passed"'
has "$lines" '{"test":"one_rank","result":"failed","code":3'
has "$lines" '"last":"it said \"no\""'
has "$lines" '{"test":"two_ranks_synchronized","result":"late","code":124'
has "$lines" '{"test":"two_ranks_multi_rank_gpu","result":"skipped"'
run 1 golden --build "$work/fake" --out "$work/real"
# a filter that matches none of the twins is found without a device
cat >"$work/fake/bin/kernels_test" <<'TEXT'
#!/usr/bin/env bash
printf 'CudaLoader.\n  SaysWhatItFound\n'
TEXT
chmod +x "$work/fake/bin/kernels_test"
run 1 twins --build "$work/fake" --out "$work/dry" --dry-run
has "$work/dry/twins.jsonl" '{"test":"kernels","result":"missing","code":0,"seconds":0,"limit":150,"last":"the filter matches no twin"}'
printf '#!/usr/bin/env bash\nexit 139\n' >"$work/fake/bin/probe"
run 1 probe --build "$work/fake" --out "$work/real"
has "$work/out" 'bin/probe ended with 139'
printf '#!/usr/bin/env bash\necho %s\n' "'{\"card\":\"\",\"nccl\":\"\"}'" >"$work/fake/bin/probe"
TROUPE_GPU_DRIVER=$work/no_driver run 0 probe --build "$work/fake" --out "$work/real"
has "$work/out" "there is no device on this machine, so stage 'probe' was not run"
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23' >"$work/driver"
TROUPE_GPU_DRIVER=$work/driver run 1 probe --build "$work/fake" --out "$work/real"
has "$work/out" 'the driver 580.95.05 is there, but gives no device'
printf 'stages: all good\n'
