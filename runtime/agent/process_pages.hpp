/// The process pages of a node's workers: what each of them runs, and what a crash has left.
///
///     output.page = pages.add(index);        // goes with the fork order
///     pages.name(index);                     // "mix(int)"
///     std::string stack = pages.ended(index);
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/os/process_page.hpp"

#include <map>
#include <string>

namespace troupe::agent {

class ProcessPages {
 public:
  /// Makes the page of a new worker and returns its descriptor. Returns none when memory or
  /// descriptors are short: the worker then works without a page.
  Fd add(ProcessIndex worker);
  /// Returns the name of what the worker runs; empty: unknown.
  std::string name(ProcessIndex worker) const;
  /// Forgets a worker that has ended, or was not forked. Returns os::stack_text() of its crash;
  /// empty: it left no record. Waits os::ModuleReader::kPatience at most for the build-ids of the
  /// modules in the record.
  std::string ended(ProcessIndex worker);

 private:
  std::map<ProcessIndex, os::ProcessPage> pages_;
  os::ModuleReader modules_;
};

}  // namespace troupe::agent
