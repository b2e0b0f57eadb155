#include "tests/chaos/ledger.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <fstream>
#include <tuple>

namespace chaos {

Ledger::Ledger(const std::string& path)
    : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
Ledger::~Ledger() {
  ::close(fd_);
}

void Ledger::append(const Entry& entry) const {
  (void)!::write(fd_, &entry, sizeof entry);  // such a small write happens whole or not at all
}

Audit audit_of(const std::string& path) {
  Audit audit;
  std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, std::uint64_t> last;
  std::ifstream file(path, std::ios::binary);
  Entry entry;
  while (file.read(reinterpret_cast<char*>(&entry), sizeof entry)) {
    ++audit.entries;
    const std::string who = "call " + std::to_string(entry.sequence) + " of caller " +
                            std::to_string(entry.caller % 10'000) + " at actor " +
                            std::to_string(entry.actor % 10'000);
    if (!audit.executed[{entry.actor, entry.caller}].insert(entry.sequence).second)
      audit.twice.push_back(who + " ran twice");
    std::uint64_t& before = last[{entry.actor, entry.caller, entry.life}];
    if (entry.sequence <= before)
      audit.out_of_order.push_back(who + " ran after call " + std::to_string(before));
    before = entry.sequence;
  }
  return audit;
}

}  // namespace chaos
