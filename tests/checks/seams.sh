#!/usr/bin/env bash
# Threads of agent, client, control, ring and objectstore block, look at the machine and touch processes through a few
# functions alone: runtime/base/wait.hpp, runtime/base/machine.hpp and runtime/os/child.hpp. The simulator links its own.
# The files named here are such functions themselves, or threads with a mailbox.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

simulated='^(objectstore|runtime/(agent|client|control|ring))/'
seams='^(objectstore/(internal/disk_thread|shared_copies)|runtime/agent/(bulk_threads|log_writer|machine_memory|node_logs|programs|receive_buffers)|runtime/client/(io_loop|lock|log_printer|worker_end)|runtime/control/(internal/)?disk_thread)\.[ch]pp$'

begin='(^|[^A-Za-z_0-9:.>])'
blocking="$begin::(poll|select)[(]|${begin}poll[(][&a-z]+[^)]*,|$begin(::)?(ppoll|epoll_p?wait2?|pselect|pause|usleep|nanosleep|sched_yield|sigwait|sem_wait)[(]|this_thread::(yield|sleep)|condition_variable|SYS_(futex|ppoll|epoll)|FUTEX_WAIT"
machine='CLOCK_(PROCESS|THREAD)_CPUTIME_ID|getcpuclockid|sched_getcpu|sched_[gs]etaffinity|sched_setscheduler|getrusage|sysconf[(]|hardware_concurrency|"/proc/|/sys/fs/cgroup'
processes="$begin::kill[(]|$begin(::)?(v?fork|waitpid|waitid|wait4|posix_spawnp?)[(]|pidfd_open|PEERPIDFD"

text=$(mktemp)
trap 'rm -f "$text"' EXIT
# Keeps file, line and text of each line without its comment. A path below /proc/self/fd names an open file, and a look at
# an epoll set without a wait blocks nobody.
{ sources hpp cpp | grep -E "$simulated" | grep -vE "$seams" || true; } | tr '\n' '\0' |
  xargs -0 -r awk '{ sub(/\/\/.*/, ""); sub(/"\/proc\/self\/fd\/"/, "\"\""); sub(/epoll_wait[(].*, 0[)]/, ""); print FILENAME ":" FNR ": " $0 }' >"$text"

look() {
  local pattern=$1 file line
  while IFS=: read -r file line _; do offence "$file:$line: $2"; done < <(grep -E "$pattern" "$text" || true)
}
look "$blocking" 'blocks: call what runtime/base/wait.hpp has'
look "$machine" 'looks at the machine: call what runtime/base/machine.hpp has'
look "$processes" 'touches a process: call what runtime/os/child.hpp has'
finish "$(cut -d: -f1 "$text" | sort -u | wc -l) files"
