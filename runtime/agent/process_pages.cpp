#include "troupe/runtime/agent/process_pages.hpp"

#include "troupe/runtime/os/output_pipes.hpp"
#include "troupe/runtime/os/stack_text.hpp"

#include <utility>

namespace troupe::agent {

Fd ProcessPages::add(ProcessIndex worker) {
  Fd fd;
  auto page = os::ProcessPage::create(fd);
  // The upper half of the descriptors is kept for sockets of workers.
  if (!page || os::is_in_upper_half(fd.get())) return {};
  pages_[worker] = std::move(*page);
  return fd;
}

std::string ProcessPages::name(ProcessIndex worker) const {
  const auto at = pages_.find(worker);
  return at == pages_.end() ? "" : at->second.name();
}

std::string ProcessPages::ended(ProcessIndex worker) {
  const auto page = pages_.extract(worker);
  if (!page) return {};
  const auto report = page.mapped().crash(modules_.source());
  if (report) return os::stack_text(*report);
  return report.error().code() == Code::unavailable ? "" : "    " + report.error().message();
}

}  // namespace troupe::agent
