/// A file to which every execution of an actor's method appends one record. All processes of the
/// load share it. It proves what replies cannot: whether a call ran twice, or never.
///
///     ledger.append({tag, caller, sequence, life});      // in the method
///     Audit audit = audit_of(path);                      // at the end
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace chaos {

/// One execution: a caller's call with that sequence number, in one life of an actor.
struct Entry {
  std::uint64_t actor = 0, caller = 0, sequence = 0, life = 0;
};

class Ledger {
 public:
  explicit Ledger(const std::string& path);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  void append(const Entry& entry) const;

 private:
  int fd_ = -1;
};

struct Audit {
  using Key = std::pair<std::uint64_t, std::uint64_t>;  ///< actor, caller
  std::map<Key, std::set<std::uint64_t>> executed;
  std::size_t entries = 0;
  std::vector<std::string> twice, out_of_order;
};
Audit audit_of(const std::string& path);

}  // namespace chaos
