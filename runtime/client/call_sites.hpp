/// The numbers of the call sites that the agent knows. Serves ClientEngine, under its lock but for
/// lately().
///
///     if (const auto number = sites.lately(at)) return *number;   // mostly
///     const CallSites::Found found = sites.find(at);
///     if (found.fresh) tell(*found.fresh);                        // the agent is told once
///
/// Invariants: SITE-1 A site keeps its number, and no other site gets it. SITE-2 The agent is told
/// of each number once, and of wire::kMaxCallSites at most: sites after those have the number 0.
/// SITE-3 What a thread remembers of one engine answers no question to another.
#pragma once

#include "troupe/runtime/engine/engine.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace troupe::client {

class CallSites {
 public:
  /// `engine`: the number of the engine in this process.
  explicit CallSites(std::uint64_t engine) noexcept : engine_(engine) {}

  /// Returns the number of the site that this thread asked for last, if that is this one. Any
  /// thread, without the lock.
  std::optional<std::uint32_t> lately(detail::CallSite at) const noexcept;
  struct Found {
    std::uint32_t number = 0;
    std::optional<wire::CallSite> fresh;  ///< the agent must be told
  };
  Found find(detail::CallSite at);
  /// Returns the text of each number that the agent knows.
  std::map<std::uint32_t, std::string> texts() const;

 private:
  const std::uint64_t engine_;
  std::map<std::pair<const char*, std::uint32_t>, std::uint32_t> numbers_;
};

}  // namespace troupe::client
