#include "troupe/runtime/os/name_page.hpp"

#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>

namespace troupe::os {

/// An odd version: the name is being written.
struct NamePage::Layout {
  std::atomic<std::uint32_t> version;
  char name[kMostName + 1];
};

namespace {

constexpr std::size_t kPage = 4096;

void* map_page(int fd) noexcept {
  void* memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

Error lacks_memory() {
  return Error(Code::out_of_memory,
               std::string("no page for a worker's name: ") + memory_remedy(errno));
}

}  // namespace

void NamePage::Unmap::operator()(Layout* layout) const noexcept {
  munmap(layout, kPage);
}

Result<NamePage> NamePage::create(Fd& fd) {
  fd = make_fd(memfd_create("troupe-name", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), kPage) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return lacks_memory();
  void* memory = map_page(fd.get());
  if (memory == nullptr) return lacks_memory();
  NamePage page;
  page.memory_.reset(new (memory) Layout);
  return page;
}

Result<NamePage> NamePage::attach(Fd fd) {
  void* memory = map_page(fd.get());
  if (memory == nullptr) return lacks_memory();
  NamePage page;
  page.memory_.reset(static_cast<Layout*>(memory));
  return page;
}

void NamePage::show(const char* name) noexcept {
  if (!memory_) return;
  const std::uint32_t version = memory_->version.load(std::memory_order_relaxed) | 1U;
  memory_->version.store(version, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::strncpy(memory_->name, name, kMostName);
  memory_->version.store(version + 1, std::memory_order_release);
}

std::string NamePage::name() const {
  if (!memory_) return {};
  const std::uint32_t before = memory_->version.load(std::memory_order_acquire);
  char copy[kMostName + 1];
  std::memcpy(copy, memory_->name, kMostName);
  copy[kMostName] = '\0';
  std::atomic_thread_fence(std::memory_order_acquire);
  if ((before & 1U) != 0 || memory_->version.load(std::memory_order_relaxed) != before) return {};
  return copy;
}

}  // namespace troupe::os
