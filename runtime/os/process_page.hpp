/// Memory that a worker shares with its agent, as one more descriptor of its fork order: the name
/// of what the worker runs, and the record of a crash.
///
///     agent:   ProcessPage page = ProcessPage::create(fd).value();   // fd goes to the worker
///     worker:  ProcessPage page = ProcessPage::attach(std::move(fd)).value();  page.show("mix");
///              record_crashes(page.crash_area());
///     agent:   page.name();  page.crash();
///
/// The agent trusts nothing in it: a name has a bound, read_crash() checks a record, and the size
/// of the memory is sealed.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/os/crash_record.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace troupe::os {

class ProcessPage {
 public:
  static constexpr std::size_t kMostName = 240;  ///< bytes; the rest is cut

  ProcessPage() noexcept = default;
  /// Makes a page; `fd` gets its descriptor. Errors: out_of_memory.
  static Result<ProcessPage> create(Fd& fd);
  /// Maps the page behind the descriptor. Errors: out_of_memory.
  static Result<ProcessPage> attach(Fd fd);
  explicit operator bool() const noexcept { return memory_ != nullptr; }

  /// Shows the name. One thread at a time. Costs some 20 ns.
  void show(const char* name) noexcept;
  /// Returns the name; empty before the first show(), or while another name is being written.
  std::string name() const;

  /// Returns the memory for record_crashes(). Precondition: there is a page.
  std::span<std::byte> crash_area() noexcept;
  /// Reads the record. Precondition: there is a page. Errors: those of read_crash().
  Result<CrashReport> crash(const ModuleSource& modules = read_modules) const;

 private:
  struct Layout;
  struct Unmap {
    void operator()(Layout* layout) const noexcept;
  };
  std::unique_ptr<Layout, Unmap> memory_;
};

}  // namespace troupe::os
