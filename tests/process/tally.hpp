/// A number in a file, on which tasks, actors and the test meet. Processes of every node see it,
/// since all nodes are on this machine.
///
///     Scratch scratch;
///     auto held = ctx.submit<hold_until>(scratch.path, 1);  // surely under way
///     Tally(scratch.path).add(1);                           // now it ends
#pragma once

#include "tests/eventually.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <string>

class Tally {
 public:
  explicit Tally(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ::ftruncate(fd, sizeof(std::atomic<int>)) != 0) std::abort();
    void* at = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (at == MAP_FAILED) std::abort();
    value_ = static_cast<std::atomic<int>*>(at);
  }
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;
  ~Tally() { ::munmap(value_, sizeof *value_); }
  void add(int n) { value_->fetch_add(n); }
  int value() const { return value_->load(); }
  bool reaches(int n) const {
    return eventually([&] { return value() >= n; });
  }

 private:
  std::atomic<int>* value_ = nullptr;
};

/// Holds the path of a tally's file, for one test.
struct Scratch {
  std::string path = testing::TempDir() + "troupe_tally_" + std::to_string(::getpid());
  Scratch() { ::unlink(path.c_str()); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { ::unlink(path.c_str()); }
};

/// A task that lasts until the tally reaches `n` and then returns `n`. It returns -1 when the
/// tally did not reach it in time.
inline int hold_until(const std::string& path, int n) {
  return Tally(path).reaches(n) ? n : -1;
}
