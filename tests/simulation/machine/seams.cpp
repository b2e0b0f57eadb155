/// The functions of the product by which a thread waits, looks at the machine and logs, defined
/// over the baton. The linker takes these in place of the library's. A thread that belongs to no
/// simulated process gets what the library would do.
#include "tests/simulation/machine/baton.hpp"
#include "troupe/runtime/agent/machine_memory.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/machine.hpp"
#include "troupe/runtime/base/usable_cpus.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/client/lock.hpp"
#include "troupe/runtime/ring/ring.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cxxabi.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <typeinfo>
#include <variant>

using troupe::sim::machine::Baton;

extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const Baton* baton = Baton::here();
  if (baton == nullptr) return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
  const auto now = baton->now().time_since_epoch().count();
  *out = {now / 1'000'000'000, now % 1'000'000'000};
  return 0;
}

namespace troupe {
namespace {

Time after(Duration time, Time now) noexcept {
  if (time <= Duration(0)) return now;
  return time > std::chrono::hours(24) ? Time::max() : now + time;
}

}  // namespace

int wait_for(std::span<pollfd> entries, Duration most) noexcept {
  if (Baton* baton = Baton::here()) return baton->wait(entries, after(most, baton->now()), "poll");
  return ::poll(entries.data(), entries.size(),
                static_cast<int>(std::clamp<Duration>(most, Duration(0), std::chrono::hours(24)) /
                                 std::chrono::milliseconds(1)));
}
bool is_ready(int fd, short events) noexcept {
  pollfd entry{fd, events, 0};
  return ::poll(&entry, 1, 0) == 1;
}
void sleep_for(Duration time) noexcept {
  if (Baton* baton = Baton::here()) return baton->sleep(time, "sleep");
  const timespec limit{time.count() / 1'000'000'000, time.count() % 1'000'000'000};
  nanosleep(&limit, nullptr);
}
void yield() noexcept {
  if (Baton* baton = Baton::here()) baton->sleep(Duration(1000), "spin");
}

int this_cpu() noexcept {
  return Baton::here() != nullptr ? Baton::self()->process->number % 2 : 0;
}
unsigned affine_cpus() noexcept {
  const Baton* baton = Baton::here();
  return baton != nullptr && baton->plan().one_cpu ? 1 : 2;
}
unsigned usable_cpus() {
  return affine_cpus();
}
void yield_on_wakeup() noexcept {}
Duration cpu_time_of(pid_t) noexcept {
  return {};
}
Duration cpu_time_of_other_threads() noexcept {
  return {};
}
Bytes physical_memory() noexcept {
  return Bytes{std::uint64_t{1} << 30};
}
Bytes unshared_memory_of(pid_t process) {
  return Bytes{(10 + static_cast<std::uint64_t>(process) % 7) << 20};
}

namespace agent {
MachineMemory machine_memory(const std::string&) {
  const Baton* baton = Baton::here();
  const bool is_short = baton != nullptr && baton->memory_is_short();
  return {std::uint64_t{1} << 30, is_short ? std::uint64_t{1} << 20 : std::uint64_t{1} << 29,
          "the machine"};
}
}  // namespace agent

namespace {
void log_text(const char* format, va_list arguments) noexcept {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  if (Baton* baton = Baton::here())
    baton->log("logs: %s", text);
  else
    std::fprintf(stderr, "troupe: %s\n", text);
}
}  // namespace
void log_line(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  log_text(format, arguments);
  va_end(arguments);
}
void log_counted(std::string_view, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  log_text(format, arguments);
  va_end(arguments);
}
void log_line_now(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  log_text(format, arguments);
  va_end(arguments);
}
void log_last_words(std::string_view text) noexcept {
  log_line("%.*s", static_cast<int>(text.size()), text.data());
}
void flush_log(Duration) noexcept {}

namespace client {
void EngineLock::wait() noexcept {
  while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree)
    Baton::current()->wait_on(&state_, Time::max(), "the engine's lock");
}
void EngineLock::wake_one() noexcept {
  if (Baton* baton = Baton::current()) baton->wake(&state_, false);
}
}  // namespace client

namespace {

template <class Variant>
void note_message(const Variant& message) {
  Baton* baton = Baton::here();
  if (baton == nullptr) return;
  const char* name = std::visit([](const auto& kind) { return typeid(kind).name(); }, message);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  const char* last = plain ? std::strrchr(plain.get(), ':') : nullptr;
  baton->heard(last != nullptr ? last + 1 : name);
}

}  // namespace

// The linker gives these functions the calls of the product's (-Wl,--wrap). A process may be
// killed before and after a frame is published, and its last messages are kept for reports.
#define TROUPE_PUSH "_ZN6troupe4ring8Producer4pushESt4spanIKSt4byteLm18446744073709551615EES5_"
#define TROUPE_NODE "_ZN6troupe4wire11decode_nodeESt4spanIKSt4byteLm18446744073709551615EE"
#define TROUPE_CALL "_ZN6troupe4wire11decode_callESt4spanIKSt4byteLm18446744073709551615EE"
bool real_push(ring::Producer*, BlobView, BlobView) noexcept asm("__real_" TROUPE_PUSH);
bool push(ring::Producer*, BlobView, BlobView) noexcept asm("__wrap_" TROUPE_PUSH);
Result<wire::Decoded<wire::NodeMessage>> real_node(BlobView) asm("__real_" TROUPE_NODE);
Result<wire::Decoded<wire::NodeMessage>> node(BlobView) asm("__wrap_" TROUPE_NODE);
Result<wire::Decoded<wire::CallMessage>> real_call(BlobView) asm("__real_" TROUPE_CALL);
Result<wire::Decoded<wire::CallMessage>> call(BlobView) asm("__wrap_" TROUPE_CALL);

bool push(ring::Producer* producer, BlobView head, BlobView body) noexcept {
  Baton* baton = Baton::here();
  if (baton == nullptr) return real_push(producer, head, body);
  baton->point(false);
  const bool pushed = real_push(producer, head, body);
  baton->point(true);
  return pushed;
}
Result<wire::Decoded<wire::NodeMessage>> node(BlobView frame) {
  auto decoded = real_node(frame);
  if (decoded) note_message(decoded->message);
  return decoded;
}
Result<wire::Decoded<wire::CallMessage>> call(BlobView frame) {
  auto decoded = real_call(frame);
  if (decoded) note_message(decoded->message);
  return decoded;
}

}  // namespace troupe
