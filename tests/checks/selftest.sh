#!/usr/bin/env bash
# Runs each check on a tree with planted offences, and expects the check to find them. A check that never found anything
# proves nothing.
set -euo pipefail
checks=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p runtime/base runtime/internal objectstore actors kernels train tune examples tests
touch {runtime,objectstore,actors,kernels,train,tune}/CMakeLists.txt

failures=0
# expect CHECK PATTERN [ARGUMENT...]: requires that the check fails and that a line of its output matches.
expect() {
  local output
  if output=$("$checks/$1.sh" "${@:3}" 2>&1); then
    echo "$1 passed, but should have said: $2"
    failures=$((failures + 1))
  elif ! grep -qE -- "$2" <<<"$output"; then
    printf '%s did not say: %s; it said:\n%s\n' "$1" "$2" "$output"
    failures=$((failures + 1))
  fi
}
clean() {
  local output
  if ! output=$("$checks/$1.sh" "${@:2}" 2>&1); then
    printf '%s objects to a clean tree:\n%s\n' "$1" "$output"
    failures=$((failures + 1))
  fi
}
header() {
  local file=$1
  shift
  { printf '/// %s\n#pragma once\n' "${comment:-Purpose.}"; printf '%s\n' "$@"; } >"$file"
}

for check in layout includes cores seams parts text mutants standard; do clean $check; done

mkdir runtime/agent
for offence in 'blocks:poll(&entry, 1, 0);' 'blocks:std::this_thread::yield();' 'blocks:  ::nanosleep(&time, nullptr);' \
  'looks at the machine:int n = sched_getcpu();' 'looks at the machine:std::ifstream file("/proc/meminfo");' \
  'touches a process:::kill(pid, 9);' 'touches a process:if (waitpid(pid, nullptr, 0) > 0) return;'; do
  echo "void f() { ${offence#*:} }" >runtime/agent/a.cpp
  expect seams "^runtime/agent/a.cpp:1: ${offence%%:*}"
done
echo 'void f() { network.poll(now); kill(actor); open("/proc/self/fd/" + n); }  // poll(&entry, 1, 0)' >runtime/agent/a.cpp
clean seams
rm -r runtime/agent

for call in 'cblas_dgemm(0);' '#include <openblas/cblas.h>' '#include "troupe/kernels/gemm/gemm.hpp"' 'auto f = dlsym(h, n);'; do
  echo "$call" >tune/a.cpp
  expect blas '^tune/a.cpp:1: reaches a BLAS' build
done
echo 'double f() { return settle(potrf); }' >tune/a.cpp
clean blas build
rm tune/a.cpp

mkdir runtime/agent
header runtime/agent/b.hpp 'class B {};'
header runtime/agent/a.hpp '#include "troupe/runtime/agent/b.hpp"' 'class A final : public B::Out {' '  struct Below {' '  };' \
  '  int one_ = 1;' '};'
clean parts
echo '#include "troupe/runtime/agent/a.hpp"' >runtime/agent/b.cpp
expect parts ': a circle of units: '
rm runtime/agent/b.cpp
sed -i 's/ B::Out {/ B {/' runtime/agent/a.hpp
expect parts '^runtime/agent/a.hpp:[0-9]*: the base class B is no interface'
sed -i 's/ B {/ B::Out {/; /one_/d' runtime/agent/a.hpp
for letter in a b c d e f g h i j k l m n o p; do echo "  int ${letter}_ = 0;"; done >>runtime/agent/a.hpp
expect parts 'a part with 16 members'
mkdir runtime/client && sed '/struct Below/,/};/d' runtime/agent/a.hpp >runtime/client/peers.hpp && rm -r runtime/agent
expect parts '^runtime/client/peers.hpp:1: a part with 16 members'
rm -r runtime/client

mkdir stray && expect layout '^stray:1: does not belong' && rmdir stray

header objectstore/a.hpp '#include "troupe/runtime/ref.hpp"'
expect includes '^objectstore/a.hpp:3: objectstore may not include runtime'
header objectstore/a.hpp '#include <vector>' '#include "troupe/runtime/base/error.hpp"'
clean includes
header kernels/a.hpp '#include "troupe/objectstore/a.hpp"'
expect includes '^kernels/a.hpp:3: kernels may not'
rm kernels/a.hpp
header runtime/a.hpp '#include <caf/all.hpp>'
expect includes '^runtime/a.hpp:3: third-party header'
header runtime/a.hpp '#include <zmq.h>'
expect includes 'third-party header <zmq.h>'
header runtime/a.hpp '#include "a.hpp"'
expect includes 'includes read'
header runtime/a.hpp '#include "troupe/runtime/internal/b.hpp"'
expect includes 'must not be seen outside'
rm runtime/a.hpp
header runtime/internal/b.hpp '#include <caf/all.hpp>'
clean includes
echo '#include "troupe/runtime/internal/b.hpp"' >train/a.cpp
expect includes '^train/a.cpp:1: .* belongs to runtime alone'
rm train/a.cpp runtime/internal/b.hpp
header train/a.hpp '#include "troupe/runtime/detail/verbs.hpp"'
expect includes '^train/a.hpp:3: train includes what users include'
header train/a.hpp '#include "troupe/runtime/engine/engine.hpp"'
expect includes '^train/a.hpp:3: train includes what users include'
header train/a.hpp 'inline int a = troupe::detail::b();'
expect includes '^train/a.hpp:3: troupe::detail:: is private'
header train/a.hpp 'inline int a = detail::b();'
expect includes '^train/a.hpp:3: detail:: is private'
header train/a.hpp '#include "troupe/runtime/context.hpp"' 'int a = train::internal::b();  // detail::c'
clean includes
header tune/a.hpp 'inline int a = train::internal::b();'
expect includes '^tune/a.hpp:3: train::internal:: is private'
header tune/a.hpp '#include "troupe/train/detail/b.hpp"'
expect includes '^tune/a.hpp:3: tune includes what users include'
header tune/a.hpp 'namespace troupe::tune::detail {' 'inline int a = detail::b();'
clean includes
rm objectstore/a.hpp train/a.hpp tune/a.hpp

header runtime/a.hpp '#include <vector>' 'using Line = std::vector<int>;'
header runtime/internal/b.hpp '#include "troupe/runtime/a.hpp"'
printf '%s\n' '#include "internal/b.hpp"' 'std::vector<int> a;  // std::map' >runtime/a.cpp
clean standard
echo 'bool b = std::find_if(' >>runtime/a.cpp
expect standard '^runtime/a.cpp:3: nobody includes <algorithm>'
sed -i 's,vector>,deque>,' runtime/a.hpp
expect standard '^runtime/a.cpp:2: nobody includes <vector>'
rm runtime/a.hpp runtime/a.cpp runtime/internal/b.hpp

mkdir -p build/include runtime/cmake
ln -s "$work" build/include/troupe
echo 'set(headers <cstdint>)' >runtime/cmake/rooms.cmake
compile=(g++ build/include build/checks/headers env)
header runtime/base/b.hpp 'using Number = int;'
header runtime/a.hpp '#include "troupe/runtime/base/b.hpp"' 'inline Number a = 1;'
clean headers "${compile[@]}"
header runtime/a.hpp 'inline Number a = 1;'
expect headers '^runtime/a.hpp:1: does not compile alone' "${compile[@]}"
header runtime/a.hpp 'inline int a(int b) { return 1; }'
expect headers 'runtime/a.hpp:3:.*unused parameter' "${compile[@]}"
rm -r build runtime/cmake runtime/a.hpp runtime/base/b.hpp

comment='Leases: a plain state machine.'
header runtime/core.hpp '#include <unordered_map>' 'struct S { std::unordered_map<int, long> table_; };'
echo 'void f(S& s) { s.table_.erase(1); }  // steady_now' >runtime/core.cpp
clean cores
echo 'void f(S& s) { for (auto& [k, v] : table_) use(k); }' >runtime/core.cpp
expect cores '^runtime/core.cpp:1: iterates the unordered container table_'
printf '#include <mutex>\n' >runtime/core.cpp
expect cores 'does not use #include<mutex>'
echo 'auto t = steady_now();' >runtime/core.cpp
expect cores 'is told the time'
echo 'std::map<Actor*, int> m;' >runtime/core.cpp
expect cores 'no keys'
rm runtime/core.*
comment=

printf '#pragma once\n' >runtime/a.hpp
expect text 'begins with a ///'
printf '/// A.\n' >runtime/a.hpp
expect text 'no #pragma once'
header runtime/a.hpp '// TO''DO: later'
expect text 'finish it'
header runtime/a.hpp 'auto x = co_await actor.call<&A::m>(Hp{1, 2});'
expect text 'name the braced value'
header runtime/a.hpp 'auto x = co_await actor.with({.retry = 3}).call<&A::m>(hp);'
clean text
rm runtime/a.hpp

mkdir -p tests/simulation/mutants
printf 'int a;\nint b;\n' >runtime/core.cpp
printf -- 'Seed: 7\n--- a/runtime/core.cpp\n+++ b/runtime/core.cpp\n@@ -1,2 +1,1 @@\n int a;\n-int b;\n' >tests/simulation/mutants/core_b.patch
clean mutants
sed -i 1d tests/simulation/mutants/core_b.patch
expect mutants '^tests/simulation/mutants/core_b.patch:1: the first line is no'
echo 'int a, c;' >runtime/core.cpp
expect mutants '^tests/simulation/mutants/core_b.patch:1: does not apply'

mkdir -p runtime/docs
printf '`Actor` stands in `core.cpp` and `nobody_s_name`\n' >runtime/docs/a.md
expect docs '^runtime/docs/a.md:1: nothing in the code is called nobody_s_name'
printf '| `TROUPE_A` | what | `a.cpp` |\n| `TROUPE_B` | what | `train/b.cpp` |\n' >runtime/docs/environment.md
echo 'auto a = getenv("TROUPE_A");' >runtime/a.cpp
echo 'auto b = Environment().text("TROUPE_B");  // "TROUPE_B", TROUPE_C' >train/b.cpp
clean environment
echo 'auto a = Environment().text("TROUPE_A");' >runtime/b.cpp
expect environment '^runtime/b.cpp:1: TROUPE_A is read in runtime/a.cpp already'
echo 'auto a = Environment().text("TROUPE_C");' >runtime/b.cpp
expect environment '^runtime/b.cpp:1: TROUPE_C has no row'
echo 'auto a = getenv("HOME");' >runtime/b.cpp
expect environment '^runtime/b.cpp:1: calls getenv'
mv train/b.cpp runtime/b.cpp
expect environment '^runtime/docs/environment.md:2: TROUPE_B is read in runtime/b.cpp, not in train/b.cpp'
rm runtime/b.cpp
expect environment '^runtime/docs/environment.md:2: nothing reads TROUPE_B'
rm -r runtime/docs runtime/a.cpp
printf -- '- **A-1** One.\n- **A-1** Two.\n[page](nowhere.md)\n' >runtime/README.md
expect pages '^runtime/README.md:2: the invariant A-1 is defined a second time'
expect pages '^runtime/README.md:3: nowhere.md is not there'
printf -- '- AB-1 One.\n- AB-1: Two.\n' >runtime/README.md
expect pages '^runtime/README.md:2: the invariant AB-1 is defined a second time'
printf -- '- T-1 One.\n' >runtime/README.md
expect pages '^runtime/README.md:1: T-1 says no room'
printf -- '- AB-1 One.\n' >runtime/README.md
header runtime/a.hpp '///  T-2  every rank' 'int a;  // 2(N-1)/N bytes, UTF-8, AB-1'
expect pages '^runtime/a.hpp:3: T-2 says no room'
header runtime/a.hpp 'int a;  // 2(N-1)/N bytes, UTF-8, AB-1'
clean pages
rm runtime/a.hpp
for ((i = 0; i < 121; i++)); do echo line; done >runtime/README.md
expect pages 'a README has at most 120'
rm runtime/README.md

header runtime/a.hpp 'class A {' '  // the loop (a.cpp)' '  std::function<void(int)> idle_;' '  /// Twice.' \
  '  Result<std::vector<int>> one(int a,' '                               int b) const;' '  bool two() const { return f(); }' \
  '  static void three();' '' '  void four();' '};'
printf 'Result<std::vector<int>> A::one(int a, int b) const {\n  four();\n}\n[[gnu::cold]] void A::three() {}\n' >runtime/a.cpp
clean headings
sed -i 's/A::three/A::other/' runtime/a.cpp
expect headings '^runtime/a.hpp:10: three is not defined in runtime/a.cpp'
sed -i 's/A::one/B::one_other/; s/A::other/A::three/' runtime/a.cpp
expect headings '^runtime/a.hpp:7: one is not defined in runtime/a.cpp'
rm runtime/a.cpp
expect headings '^runtime/a.hpp:4: there is no runtime/a.cpp'
rm runtime/a.hpp

# archive ROOM CODE: the archive of a room with one unit.
archive() {
  mkdir -p build
  printf '%s\n' "$2" | g++ -xc++ -c -o "build/$1.o" -
  rm -f "build/libroom_$1.a"
  ar rcs "build/libroom_$1.a" "build/$1.o"
}
archive base 'namespace troupe { int now() { return 1; } }'
archive client 'namespace troupe { int now(); int low() { return now(); } template <class T> T same(T t) { return t; } int two = same(2); }'
archive agent 'namespace troupe { int now(); int low(); int high() { return now() + low(); } }'
expect_links() {
  local output
  output=$("$checks/links.sh" build 2>&1) || true
  grep -qE -- "$1" <<<"$output" || { printf 'links did not say: %s; it said:\n%s\n' "$1" "$output"; failures=$((failures + 1)); }
}
expect_links '^3 archives: no offence'
archive base 'namespace troupe { int high(); int now() { return high(); } }'
expect_links '^room base needs troupe::high\(\), which agent defines'
archive control 'namespace troupe { int low(); int here() { return low(); } }'
expect_links '^room control needs troupe::low\(\), which client defines'
archive attic 'int attic;'
expect_links 'the room attic has no layer'
rm -r build

# command OPTION...: a build with one command line.
command() {
  mkdir -p build
  printf '[\n{\n  "directory": "/b",\n  "command": "g++ %s -c /b/a.cpp",\n  "file": "%s/a.cpp"\n}\n]\n' "$*" "$work" >build/compile_commands.json
}
command -I/b/include -DA=1/2 -DB='\\\"http://a/b\\\"' -DC=include/a
clean commands build
command -DA=1 -DB='\\\"/b/a\\\"'
expect commands '^a.cpp: -DB="/b/a": a definition holds an absolute path' build
command -DA=/b
expect commands '^a.cpp: -DA=/b: ' build
rm -r build

[[ $failures == 0 ]] || { echo "$failures failures"; exit 1; }
echo 'each check finds what it is for'
