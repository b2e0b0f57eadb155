// Tests what child processes leave when they crash, that no crash hangs, and that a forged record
// harms nobody.
#include "troupe/runtime/os/crash_record.hpp"

#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/os/internal/crash_layout.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace troupe::os {
namespace crash_record_test {
namespace {

using namespace std::chrono_literals;

/// Sanitizers have handlers of their own, which stay.
constexpr bool kSanitized = kLeeway > 2;

std::uint64_t bit_of(int signal) {
  return std::uint64_t{1} << (signal - 1);
}

/// A memory file for one record, and a child of this test that writes it.
class CrashRecord : public testing::Test {
 protected:
  void SetUp() override { make_area(); }
  void TearDown() override { munmap(area_, kCrashBytes); }

  void make_area() {
    file_ = Fd(memfd_create("crash", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(file_.get(), kCrashBytes), 0);
    void* const memory =
        mmap(nullptr, kCrashBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    area_ = static_cast<std::byte*>(memory);
  }
  std::span<std::byte> area() { return {area_, kCrashBytes}; }

  /// Runs this in a child that records crashes. Returns how the child ended.
  int run(const std::function<void()>& body, bool records = true) {
    child_ = fork();
    if (child_ == 0) {
      const rlimit none{};
      setrlimit(RLIMIT_CORE, &none);
      const int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);
      dup2(sink, STDERR_FILENO);  // what abort() of the C library says
      if (records) record_crashes(area());
      body();
      _exit(0);
    }
    return wait_for_child();
  }
  int wait_for_child() {
    int status = 0;
    if (eventually([&] { return waitpid(child_, &status, WNOHANG) == child_; }, 20s)) return status;
    ADD_FAILURE() << "the child hangs";
    kill(child_, SIGKILL);
    waitpid(child_, &status, 0);
    return status;
  }
  Result<CrashReport> report() { return read_crash(file_.get()); }

  Fd file_;
  std::byte* area_ = nullptr;
  pid_t child_ = 0;
};

/// Crashes only: sanitized builds handle these signals themselves.
class Crashes : public CrashRecord {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer handles the signals";
    CrashRecord::SetUp();
  }
  void TearDown() override {
    if (area_ != nullptr) CrashRecord::TearDown();
  }
};

[[gnu::noinline]] void write_to(volatile int* place) {
  *place = 1;
}

/// Returns whether the frame is in that function.
bool is_in(const CrashFrame& frame, void (*function)(volatile int*)) {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(function), &info);
  const auto begin =
      reinterpret_cast<std::uintptr_t>(function) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  return frame.module.ends_with("runtime_os_test") && frame.offset >= begin &&
         frame.offset < begin + 32;
}

TEST_F(Crashes, ABadPointerLeavesAddressAndStack) {
  const int status = run([] { write_to(reinterpret_cast<volatile int*>(0x18)); });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV) << "the default action follows";
  const CrashReport crash = report().value();
  EXPECT_EQ(crash.signal, SIGSEGV);
  EXPECT_FALSE(crash.sent);
  EXPECT_EQ(crash.address, 0x18u);
  EXPECT_EQ(crash.pid, child_);
  EXPECT_EQ(crash.thread_id, child_);
  EXPECT_TRUE(crash.whole);
  ASSERT_GE(crash.frames.size(), 3u);
  EXPECT_TRUE(is_in(crash.frames[0], write_to)) << text_of(crash);
  EXPECT_TRUE(std::any_of(crash.frames.begin(), crash.frames.end(),
                          [](const CrashFrame& frame) {
                            return frame.module.find("libc.so") != std::string::npos &&
                                   frame.build_id.size() == 40;
                          }))
      << "the start of the program is in the C library: " << text_of(crash);
  EXPECT_EQ(text_of(crash).find("killed by SIGSEGV at address 0x18 in thread '"), 0u);
}

TEST_F(Crashes, EachSignalIsRecorded) {
  for (const int signal : kCrashSignals) {
    const int status = run([signal] { ::raise(signal); });
    EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, signal);
    const auto crash = report();
    ASSERT_TRUE(crash.ok()) << signal;
    EXPECT_EQ(crash->signal, signal);
    EXPECT_TRUE(crash->sent);
    EXPECT_TRUE(crash->whole);
    EXPECT_EQ(text_of(*crash).find("sent by"), std::string::npos) << "by itself";
    munmap(area_, kCrashBytes);
    make_area();
  }
}

TEST_F(Crashes, ASignalFromOutsideNamesItsSender) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Fd reads(ends[0]), writes(ends[1]);
  std::thread sender([&] {
    pid_t child = 0;
    if (read(reads.get(), &child, sizeof child) == sizeof child) kill(child, SIGSEGV);
  });
  const int status = run([&] {
    const pid_t self = getpid();
    if (write(writes.get(), &self, sizeof self) != sizeof self) _exit(1);
    for (;;) pause();
  });
  sender.join();
  EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSEGV);
  const CrashReport crash = report().value();
  EXPECT_TRUE(crash.sent);
  EXPECT_EQ(crash.address, static_cast<std::uint64_t>(getpid()));
  EXPECT_NE(text_of(crash).find("sent by process"), std::string::npos);
}

TEST_F(Crashes, AThreadOfTheUserIsNamed) {
  run([] {
    std::thread([] {
      pthread_setname_np(pthread_self(), "user-thread");
      write_to(nullptr);
    }).join();
  });
  const CrashReport crash = report().value();
  EXPECT_EQ(crash.thread, "user-thread");
  EXPECT_NE(crash.thread_id, crash.pid);
  ASSERT_FALSE(crash.frames.empty());
  EXPECT_TRUE(is_in(crash.frames[0], write_to)) << text_of(crash);
}

TEST_F(Crashes, ACallThroughANullPointerNamesTheCaller) {
  run([] {
    void (*volatile nothing)() = nullptr;
    nothing();
  });
  const CrashReport crash = report().value();
  ASSERT_GE(crash.frames.size(), 2u) << text_of(crash);
  EXPECT_EQ(crash.frames[0].offset, 0u);
  EXPECT_TRUE(crash.frames[1].module.ends_with("runtime_os_test")) << text_of(crash);
}

[[gnu::noinline]] int overflow(volatile char* above) {
  if (*above == 'x') return 0;  // never
  volatile char mine[4096];
  mine[0] = *above;
  return overflow(mine) + mine[0];
}

TEST_F(Crashes, AStackOverflowLeavesARecord) {
  const int status = run([] {
    volatile char first = 0;
    _exit(overflow(&first));
  });
  EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSEGV);
  const CrashReport crash = report().value();
  EXPECT_TRUE(crash.whole);
  EXPECT_EQ(crash.frames.size(), kMaxCrashFrames);
}

TEST_F(Crashes, AnOverflowInAThreadWithAStackForTheHandlerLeavesARecord) {
  run([] {
    std::thread([] {
      give_crash_stack();
      volatile char first = 0;
      _exit(overflow(&first));
    }).join();
  });
  EXPECT_EQ(report().value().frames.size(), kMaxCrashFrames);
}

TEST_F(Crashes, AnOverflowInAnotherThreadLeavesTheSignalAlone) {
  const int status = run([] {
    std::thread([] {
      volatile char first = 0;
      _exit(overflow(&first));
    }).join();
  });
  EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSEGV);
  EXPECT_EQ(report().error().code(), Code::unavailable);
}

TEST_F(Crashes, ASecondFaultInTheHandlerEndsTheProcess) {
  const int status = run([this] {
    mprotect(area_, kCrashBytes, PROT_NONE);
    write_to(nullptr);
  });
  EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSEGV);
  EXPECT_EQ(report().error().code(), Code::unavailable);
}

TEST_F(Crashes, AbortWhileTheLockOfMallocIsHeld) {
  const int status = run([] {
    std::thread([] {}).join();  // a process that had one thread takes no lock
    std::thread([] {
      // Overwrites the size of what lies behind a block. malloc() finds that, and aborts.
      constexpr std::size_t kSize = 1000;
      char* const block = static_cast<char*>(std::malloc(kSize));
      auto* volatile target = block;
      for (std::size_t i = 0; i < kSize + 64; ++i) target[i] = static_cast<char>(0xff);
      for (int i = 0; i < 1000; ++i) target = static_cast<char*>(std::malloc(100000));
    }).join();
  });
  EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGABRT);
  const CrashReport crash = report().value();
  EXPECT_EQ(crash.signal, SIGABRT);
  EXPECT_TRUE(crash.whole);
  EXPECT_GE(crash.frames.size(), 4u) << text_of(crash);
}

TEST_F(Crashes, AForkOfTheProcessWritesNoRecord) {
  const int status = run([] {
    const pid_t fork_of_it = fork();
    if (fork_of_it == 0) write_to(nullptr);
    int how = 0;
    waitpid(fork_of_it, &how, 0);
    _exit(WIFSIGNALED(how) ? WTERMSIG(how) : 0);
  });
  EXPECT_EQ(WEXITSTATUS(status), SIGSEGV);
  EXPECT_EQ(report().error().code(), Code::unavailable);
}

TEST_F(Crashes, NoRunHangs) {
  for (int i = 0; i < 200; ++i) {
    const int status = run([] {
      for (int k = 0; k < 2; ++k) {
        std::thread([] {
          for (;;) {
            if (void* const library = dlopen("libm.so.6", RTLD_NOW)) dlclose(library);
            std::free(std::malloc(5000));
          }
        }).detach();
        std::thread([] { write_to(nullptr); }).detach();
      }
      for (;;) pause();
    });
    ASSERT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSEGV) << "run " << i;
    const auto crash = report();
    ASSERT_TRUE(crash.ok() && crash->whole) << "run " << i;
    std::memset(area_, 0, kCrashBytes);
  }
}

TEST_F(CrashRecord, AHandlerOfTheProgramStays) {
  const int status = run(
      [this] {
        signal(SIGSEGV, [](int) { _exit(42); });
        signal(SIGFPE, SIG_IGN);
        const std::uint64_t recorded = record_crashes(area());
        if ((recorded & (bit_of(SIGSEGV) | bit_of(SIGFPE))) != 0) _exit(1);
        ::raise(SIGFPE);
        ::raise(SIGSEGV);
      },
      false);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 42);
  EXPECT_EQ(report().error().code(), Code::unavailable);
}

// --- forged records

internal::CrashHead whole_head() {
  internal::CrashHead head{};
  head.magic = internal::kCrashMagic;
  head.stage = static_cast<std::uint32_t>(internal::CrashStage::whole);
  head.signal = SIGSEGV;
  std::memset(head.name, 'x', sizeof head.name);  // no end
  head.frames = 2;
  head.at[0] = 0x1010;
  head.at[1] = 0x2000;  // returns to the end of its module
  return head;
}

class ForgedRecord : public CrashRecord {
 protected:
  void write(const internal::CrashHead& head, const std::string& maps) {
    std::memcpy(area_, &head, sizeof head);
    std::memcpy(area_ + sizeof head, maps.data(), maps.size());
  }
  std::string problem_of(internal::CrashHead head) {
    write(head, "");
    const auto crash = report();
    return crash ? "" : crash.error().message();
  }
};

TEST_F(ForgedRecord, EachNumberIsChecked) {
  EXPECT_EQ(problem_of(whole_head()), "");
  const auto with = [&](auto change) {
    internal::CrashHead head = whole_head();
    change(head);
    return problem_of(head);
  };
  using Head = internal::CrashHead;
  EXPECT_NE(with([](Head& head) { head.magic = 7; }), "");
  EXPECT_NE(with([](Head& head) { head.stage = 3; }), "");
  EXPECT_NE(with([](Head& head) { head.frames = kMaxCrashFrames + 1; }), "");
  EXPECT_NE(with([](Head& head) { head.map_bytes = internal::kMaxMapBytes + 1; }), "");
  EXPECT_NE(with([](Head& head) { head.map_bytes = UINT32_MAX; }), "");
  EXPECT_NE(with([](Head& head) { head.signal = SIGKILL; }), "");
  EXPECT_EQ(with([](Head& head) { head.map_bytes = internal::kMaxMapBytes; }), "");
}

TEST_F(ForgedRecord, AShrunkFileIsDamaged) {
  write(whole_head(), "");
  ASSERT_EQ(ftruncate(file_.get(), 100), 0);
  EXPECT_EQ(report().error().code(), Code::invalid_argument);
  ASSERT_EQ(ftruncate(file_.get(), 0), 0);
  EXPECT_EQ(report().error().code(), Code::invalid_argument);
  EXPECT_FALSE(read_crash(file_.get(), UINT64_MAX / 2).ok());
}

TEST_F(ForgedRecord, ModulesThatAreNoLibrariesAreNotRead) {
  const std::string folder = testing::TempDir() + "crash_record_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string fifo = folder + "/fifo", text = folder + "/text";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Fd file(open(text.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(),
                    "\x7f"
                    "ELF\2",
                    5),
            5);
  for (const std::string& path :
       {fifo, text, std::string("/dev/zero"), std::string("/proc/self/mem"),
        std::string("relative"), std::string("/none/\x1b[2J")}) {
    struct stat status{};
    stat(path.c_str(), &status);
    internal::CrashHead head = whole_head();
    const std::string maps =
        "1000-2000 r-xp 00000000 08:01 " + std::to_string(status.st_ino) + "   " + path + "\n";
    head.map_bytes = static_cast<std::uint32_t>(maps.size());
    write(head, maps);
    const CrashReport crash = report().value();
    EXPECT_EQ(crash.frames.at(0).module, path);
    EXPECT_EQ(crash.frames[0].build_id, "");
    EXPECT_EQ(crash.frames[0].offset, 0x10u);
    EXPECT_EQ(crash.frames[1].module, path) << "the call stands before the address";
    EXPECT_EQ(text_of(crash).find('\x1b'), std::string::npos);
  }
  unlink(fifo.c_str());
  unlink(text.c_str());
  rmdir(folder.c_str());
}

TEST_F(ForgedRecord, ALibraryOfAnotherBuildGivesNoBuildId) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::malloc), &info), 0);
  const std::string path = info.dli_fname;
  struct stat status{};
  if (path[0] != '/' || stat(path.c_str(), &status) != 0) GTEST_SKIP() << "no path of malloc()";
  for (const bool same : {true, false}) {
    internal::CrashHead head = whole_head();
    const std::string maps = "1000-2000 r-xp 00000000 08:01 " +
                             std::to_string(status.st_ino + (same ? 0 : 1)) + " " + path + "\n";
    head.map_bytes = static_cast<std::uint32_t>(maps.size());
    write(head, maps);
    EXPECT_EQ(report().value().frames.at(0).build_id.empty(), !same);
  }
}

TEST_F(ForgedRecord, RandomBytesAreReadOrRefused) {
  Random random(11);
  const std::string lines =
      "1000-2000 r-xp 00000000 08:01 12 /proc/self/exe\n3000-2000 r-xp 0 0:0 0\n-- x\n\n"
      "ffffffffffffffff-0 r-xp zz\n1-2 r-x";
  for (int i = 0; i < 5000; ++i) {
    internal::CrashHead head = whole_head();
    head.frames = static_cast<std::uint32_t>(random.below(kMaxCrashFrames + 2));
    head.map_bytes = static_cast<std::uint32_t>(random.below(lines.size() + 2));
    for (auto& address : head.at) address = random.chance(0.5) ? random() : random.below(0x4000);
    write(head, lines);
    for (std::uint64_t n = random.below(6); n > 0; --n)
      area_[random.below(sizeof head + lines.size())] = static_cast<std::byte>(random());
    if (const auto crash = report()) {
      for (const char c : text_of(*crash))
        ASSERT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
    }
  }
}

}  // namespace
}  // namespace crash_record_test
}  // namespace troupe::os
