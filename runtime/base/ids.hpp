/// Identifiers. Each kind is a type of its own, so that one cannot stand where another is meant.
///
///     NodeId node = NodeId::random();       // 128 bits of getrandom
///     std::string s = node.str();           // 32 hex digits
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <array>
#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// A 128-bit value. Either `high` names the maker (node, process) and `low` counts the maker's ids,
/// or both are random. Zero means none.
template <class Tag>
struct Id {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend constexpr auto operator<=>(const Id&, const Id&) = default;
  explicit constexpr operator bool() const noexcept { return (high | low) != 0; }

  /// Makes an id of 128 bits from getrandom(2). Never zero.
  static Id random();
  /// Returns 32 lower-case hex digits.
  std::string str() const;
  /// The inverse of str(); nullopt when the text is anything else.
  static std::optional<Id> parse(std::string_view text);
};

using ClusterId = Id<struct ClusterTag>;
using NodeId = Id<struct NodeTag>;
using ProcessId =
    Id<struct ProcessTag>;  ///< one process of a cluster: driver, worker, agent or control
using JobId = Id<struct JobTag>;
using TaskId = Id<struct TaskTag>;
using ObjectId = Id<struct ObjectTag>;
using ActorId = Id<struct ActorTag>;
using GroupId = Id<struct GroupTag>;
using SessionId = Id<struct SessionTag>;  ///< one start of one process, for Link

/// 64-bit number that one process counts up; 0 is none. A constant converts to it, a variable does
/// not: of() and `value` show where a number enters or leaves a message.
///
///     LeaseId lease = 7;
///     LeaseId other = LeaseId::of(message.getLease());
template <class Tag>
struct Number {
  std::uint64_t value = 0;

  constexpr Number() = default;
  template <std::integral Constant>
  consteval Number(Constant constant) : value(static_cast<std::uint64_t>(constant)) {}
  static constexpr Number of(std::uint64_t value) noexcept {
    Number number;
    number.value = value;
    return number;
  }

  friend constexpr auto operator<=>(const Number&, const Number&) = default;
  explicit constexpr operator bool() const noexcept { return value != 0; }
  constexpr Number& operator++() noexcept { return (++value, *this); }
  constexpr Number operator++(int) noexcept { return of(value++); }
  /// Decimal digits.
  std::string str() const { return std::to_string(value); }
};

/// A process as its node counts it: one of the node's own, a proxy process, or another node as a
/// whole. A node never gives a number out twice.
using ProcessIndex = Number<struct ProcessIndexTag>;
/// A lease, as the node of its worker counts it.
using LeaseId = Number<struct LeaseTag>;
/// A scheduling class of one process, which asks for leases under this number.
using LeaseKey = Number<struct LeaseKeyTag>;
/// A job, as one node counts it.
using JobNumber = Number<struct JobNumberTag>;

/// Counts the lives of a node or actor. A higher epoch replaces a lower one for ever.
using Epoch = std::uint64_t;

namespace detail {
TROUPE_API void random_id(std::uint64_t& high, std::uint64_t& low);
TROUPE_API std::string id_to_string(std::uint64_t high, std::uint64_t low);
TROUPE_API bool id_from_string(std::string_view text, std::uint64_t& high, std::uint64_t& low);
}  // namespace detail

template <class Tag>
Id<Tag> Id<Tag>::random() {
  Id id;
  detail::random_id(id.high, id.low);
  return id;
}
template <class Tag>
std::string Id<Tag>::str() const {
  return detail::id_to_string(high, low);
}
template <class Tag>
std::optional<Id<Tag>> Id<Tag>::parse(std::string_view text) {
  Id id;
  if (!detail::id_from_string(text, id.high, id.low)) return std::nullopt;
  return id;
}

}  // namespace troupe

template <class Tag>
struct std::hash<troupe::Number<Tag>> {
  std::size_t operator()(const troupe::Number<Tag>& number) const noexcept {
    return static_cast<std::size_t>(number.value);
  }
};

template <class Tag>
struct std::hash<troupe::Id<Tag>> {
  std::size_t operator()(const troupe::Id<Tag>& id) const noexcept {
    std::uint64_t x = id.high ^ (id.low * 0x9e3779b97f4a7c15ULL);
    return static_cast<std::size_t>(x ^ (x >> 32));
  }
};
