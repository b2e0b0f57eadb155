/// A page of memory in which a worker shows its agent the name of what it runs, as one more
/// descriptor of its fork order.
///
///     agent:   NamePage page = NamePage::create(fd).value();   // fd goes to the worker
///     worker:  NamePage page = NamePage::attach(std::move(fd)).value();  page.show("mix");
///     agent:   page.name();
///
/// The agent trusts nothing in it: a name has a bound, and the size of the memory is sealed.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace troupe::os {

class NamePage {
 public:
  static constexpr std::size_t kMostName = 240;  ///< bytes; the rest is cut

  NamePage() noexcept = default;
  /// Makes a page; `fd` gets its descriptor. Errors: out_of_memory.
  static Result<NamePage> create(Fd& fd);
  /// Maps the page behind the descriptor. Errors: out_of_memory.
  static Result<NamePage> attach(Fd fd);
  explicit operator bool() const noexcept { return memory_ != nullptr; }

  /// Shows the name. One thread at a time. Costs some 20 ns.
  void show(const char* name) noexcept;
  /// Returns the name; empty before the first show(), or while another name is being written.
  std::string name() const;

 private:
  struct Layout;
  struct Unmap {
    void operator()(Layout* layout) const noexcept;
  };
  std::unique_ptr<Layout, Unmap> memory_;
};

}  // namespace troupe::os
