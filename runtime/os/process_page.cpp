#include "troupe/runtime/os/process_page.hpp"

#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

namespace troupe::os {
namespace {

constexpr std::size_t kNameBytes = 4096;

}  // namespace

/// An odd version: the name is being written.
struct ProcessPage::Layout {
  std::atomic<std::uint32_t> version;
  char name[kMostName + 1];
  /// At a page of its own, so that the kernel gives no memory for it before a crash.
  alignas(kNameBytes) std::array<std::byte, kCrashBytes> crash;
};

namespace {

constexpr std::size_t kBytes = kNameBytes + kCrashBytes;

void* map_page(int fd) noexcept {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

Error lacks_memory() {
  return Error(Code::out_of_memory,
               std::string("no process page for a worker: ") + memory_remedy(errno));
}

}  // namespace

void ProcessPage::Unmap::operator()(Layout* layout) const noexcept {
  munmap(layout, sizeof(Layout));
}

Result<ProcessPage> ProcessPage::create(Fd& fd) {
  fd = make_fd(memfd_create("troupe-page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || !resize_memory(fd.get(), kBytes) ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return lacks_memory();
  void* memory = map_page(fd.get());
  if (memory == nullptr) return lacks_memory();
  ProcessPage page;
  static_assert(sizeof(Layout) == kBytes);
  page.memory_.reset(new (memory) Layout);  // writes nothing: the memory stays untouched
  return page;
}

Result<ProcessPage> ProcessPage::attach(Fd fd) {
  void* memory = map_page(fd.get());
  if (memory == nullptr) return lacks_memory();
  ProcessPage page;
  page.memory_.reset(static_cast<Layout*>(memory));
  return page;
}

void ProcessPage::show(const char* name) noexcept {
  if (!memory_) return;
  const std::uint32_t version = memory_->version.load(std::memory_order_relaxed) | 1U;
  memory_->version.store(version, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::strncpy(memory_->name, name, kMostName);
  memory_->version.store(version + 1, std::memory_order_release);
}

std::string ProcessPage::name() const {
  if (!memory_) return {};
  const std::uint32_t before = memory_->version.load(std::memory_order_acquire);
  char copy[kMostName + 1];
  std::memcpy(copy, memory_->name, kMostName);
  copy[kMostName] = '\0';
  std::atomic_thread_fence(std::memory_order_acquire);
  if ((before & 1U) != 0 || memory_->version.load(std::memory_order_relaxed) != before) return {};
  return copy;
}

std::span<std::byte> ProcessPage::crash_area() noexcept {
  return memory_->crash;
}

Result<CrashReport> ProcessPage::crash(const ModuleSource& modules) const {
  return read_crash(memory_->crash, modules);
}

}  // namespace troupe::os
