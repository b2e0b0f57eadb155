#include "troupe/actors/collective/nodes/internal/call_head.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace troupe::collective::nodes {
namespace {

using internal::CallLog;

constexpr std::uint32_t kMagic = 0x63616c6c;  // "call"

std::string_view name_of_reduce(std::uint8_t reduce) noexcept {
  switch (static_cast<Reduce>(reduce)) {
    case Reduce::sum: return "sum";
    case Reduce::mean: return "mean";
    case Reduce::max: return "max";
    case Reduce::min: return "min";
  }
  return "?";
}

/// Returns what a rank makes, such as "all_reduce #3 of 10 x f32 (sum)".
std::string words_of(const CallHead& head) {
  const auto kind = static_cast<OperationKind>(head.kind);
  std::string text = std::string(name_of(kind)) + " #" + std::to_string(head.sequence);
  if (kind == OperationKind::barrier || kind == OperationKind::split) return text;
  text += " of " + std::to_string(head.count) + " x " +
          std::string(kernels::name_of(static_cast<DType>(head.type)));
  if (kind == OperationKind::broadcast) text += " from rank " + std::to_string(head.root);
  if (kind == OperationKind::all_reduce || kind == OperationKind::reduce_scatter)
    text += " (" + std::string(name_of_reduce(head.reduce)) + ")";
  return text;
}

/// Returns the name of the rank's call with this number; empty when the head does not have it.
std::string name_of(const CallHead& head, std::uint64_t number) {
  const std::uint64_t last = CallLog::number_of(head.call);
  if (number == 0 || number > last || last - number >= CallHead::kNames) return {};
  const char* name = head.names[last - number];
  return {name, ::strnlen(name, sizeof head.names[0])};
}

/// Returns the sentence about the first calls of the program that differ, or nothing.
std::string difference_of_calls(int rank, const CallHead& its, int other, const CallHead& others) {
  if (its.call == others.call) return {};
  const std::uint64_t last =
      std::min(CallLog::number_of(its.call), CallLog::number_of(others.call));
  for (std::uint64_t back = std::min(CallHead::kNames, last); back-- > 0;) {
    const std::string one = name_of(its, last - back), two = name_of(others, last - back);
    if (!one.empty() && !two.empty() && one != two)
      return internal::difference_of(rank, one, other, two);
  }
  return {};
}

}  // namespace

CallHead call_head_of(const internal::Operation& o, const internal::CallLog& log) {
  CallHead head;
  head.magic = kMagic;
  head.kind = static_cast<std::uint8_t>(o.kind);
  head.type = static_cast<std::uint8_t>(o.type);
  head.reduce = static_cast<std::uint8_t>(o.reduce);
  head.root = o.root;
  head.count = o.count;
  head.call = o.call;
  const std::uint64_t number = CallLog::number_of(o.call);
  for (std::uint64_t back = 0; back < std::min(CallHead::kNames, number); ++back) {
    const std::string name = log.name_of(number - back);
    std::memcpy(head.names[back], name.data(), std::min(name.size(), sizeof head.names[back]));
  }
  return head;
}

std::optional<CallHead> call_head_from(std::span<const std::byte> frame) noexcept {
  CallHead head;
  if (frame.size() != sizeof head) return std::nullopt;
  std::memcpy(&head, frame.data(), sizeof head);
  if (head.magic != kMagic) return std::nullopt;
  return head;
}

std::span<const std::byte> bytes_of(const CallHead& head) noexcept {
  return std::as_bytes(std::span(&head, 1));
}

std::optional<Difference> difference_of(int rank, const CallHead& its, int other,
                                        const CallHead& others) {
  if (other < rank) return difference_of(other, others, rank, its);
  const std::string of_calls = difference_of_calls(rank, its, other, others);
  if (!of_calls.empty()) return Difference{true, of_calls};
  const bool same = its.kind == others.kind && its.type == others.type &&
                    its.reduce == others.reduce && its.root == others.root &&
                    its.count == others.count && its.meeting == others.meeting;
  if (same && its.device == others.device) return std::nullopt;
  if (same)
    return Difference{false, "the device of rank " + std::to_string(other) +
                                 " had other operations before than that of rank " +
                                 std::to_string(rank) +
                                 ": every rank must make the same calls in the same order"};
  return Difference{false, "rank " + std::to_string(other) +
                               " made another call or gave another size than rank " +
                               std::to_string(rank) + ": " + words_of(others) + " in place of " +
                               words_of(its)};
}

}  // namespace troupe::collective::nodes
