// Tests that putting and getting small values makes no system call, neither for inline values nor
// for those in shared memory.
#include "fake_agent.hpp"

#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

#if defined(__x86_64__) && defined(PR_SET_SYSCALL_USER_DISPATCH)
#define CAN_CATCH 1
#else
#define CAN_CATCH 0
#endif

namespace troupe::client {
namespace {

#if CAN_CATCH
volatile char g_mode;                 // the kernel reads it at every system call of the thread
volatile sig_atomic_t g_caught = -1;  // number of the first one, or -1

/// Notes the system call and makes it again; later calls of the body are not noted.
void on_call(int, siginfo_t* info, void* context) {
  g_mode = SYSCALL_DISPATCH_FILTER_ALLOW;
  if (g_caught < 0) g_caught = info->si_syscall;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RIP] -= 2;  // the length of the syscall instruction
  registers[REG_RAX] = info->si_syscall;
}
#endif

/// Returns the number of the first system call that this thread makes in `body`; -1: none, -2:
/// the kernel cannot tell.
template <class Body>
int first_system_call(Body&& body) {
#if CAN_CATCH
  struct sigaction action{};
  action.sa_sigaction = on_call;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  g_mode = SYSCALL_DISPATCH_FILTER_ALLOW;
  g_caught = -1;
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0L, 0L, &g_mode) != 0) return -2;
  g_mode = SYSCALL_DISPATCH_FILTER_BLOCK;
  body();
  g_mode = SYSCALL_DISPATCH_FILTER_ALLOW;
  prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0L, 0L, 0L);
  return g_caught;
#else
  (void)body;
  return -2;
#endif
}

constexpr int kMany = 1000;

struct SystemCalls : ::testing::Test {
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer makes calls of its own";
#endif
    if (first_system_call([] {}) == -2) GTEST_SKIP() << "this kernel does not tell of system calls";
  }
  ClientEngine& engine() { return *agent.engine; }
  detail::ObjectHandle put(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return agent.finish(agent.meanwhile([&] { return engine().put(bytes, {}); }));
  }
  FakeAgent agent;
};

TEST_F(SystemCalls, OneIsSeen) {
  EXPECT_GE(first_system_call([] { (void)getppid(); }), 0);
}

TEST_F(SystemCalls, PutOfASmallValueMakesNone) {
  std::vector<detail::ObjectHandle> kept(kMany);
  const std::array<std::byte, 100> bytes{};
  for (auto& one : kept) one = engine().put(bytes, {});  // the heap grows here
  kept.assign(kMany, {});
  malloc_trim(1 << 20);
  EXPECT_EQ(first_system_call([&] {
              for (int i = 0; i < 500; ++i)
                kept[static_cast<std::size_t>(i)] = engine().put(bytes, {});
            }),
            -1);
}

TEST_F(SystemCalls, GetMakesNone) {
  const detail::ObjectHandle small = engine().put(std::array<std::byte, 8>{}, {});
  const detail::ObjectHandle large = put(std::string(8192, 'x'));
  for (const auto& object : {small, large}) {
    agent.finish(agent.meanwhile([&] { return engine().get(object, 10s).bytes.size(); }));
    std::size_t bytes = 0;
    EXPECT_EQ(first_system_call([&] {
                for (int i = 0; i < kMany; ++i) bytes += engine().get(object, 10s).bytes.size();
              }),
              -1);
    EXPECT_EQ(bytes % kMany, 0u);
  }
}

}  // namespace
}  // namespace troupe::client
