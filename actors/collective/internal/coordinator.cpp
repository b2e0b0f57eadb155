#include "troupe/actors/collective/internal/coordinator.hpp"

#include <algorithm>

namespace troupe::collective::internal {

std::string words_of_message(std::uint64_t count, std::uint32_t type) {
  return std::to_string(count) + " x " + std::string(kernels::name_of(static_cast<DType>(type)));
}

void Coordinator::agree_on_transfers(const Operation& o) {
  agree_with_self(o);
  std::vector<Call> calls;
  calls.reserve(o.transfers.size());
  std::vector<Transfers::One> messages;
  for (const Transfers::One& one : o.transfers) {
    if (one.peer == rank()) continue;
    calls.push_back({static_cast<std::uint64_t>(one.count), static_cast<std::uint32_t>(one.type),
                     one.sends ? 1u : 0u});
    messages.push_back({true, one.peer, DType::u8, sizeof(Call), &calls.back(), nullptr});
  }
  move(o, messages);
  for (const Transfers::One& one : o.transfers)
    if (one.peer != rank()) compare(one, next_call(o, one.peer, !one.sends));
}

/// Checks the messages of a rank to itself. Send and receive must be in the same call, since a
/// device would wait for ever for the other one.
void Coordinator::agree_with_self(const Operation& o) {
  std::deque<const Transfers::One*> open;
  for (const Transfers::One& one : o.transfers) {
    if (one.peer != rank()) continue;
    if (open.empty() || open.front()->sends == one.sends) {
      open.push_back(&one);
      continue;
    }
    compare(one, {static_cast<std::uint64_t>(open.front()->count),
                  static_cast<std::uint32_t>(open.front()->type), one.sends ? 0u : 1u});
    open.pop_front();
  }
  if (!open.empty())
    fail(Code::invalid_argument, name_of_rank(rank()) +
                                     " sends to itself or receives from itself alone: on a device "
                                     "both belong into one exchange() or group()");
}

void Coordinator::compare(const Transfers::One& mine, const Call& theirs) {
  const auto count = static_cast<std::uint64_t>(mine.count);
  const auto type = static_cast<std::uint32_t>(mine.type);
  if (theirs.count == count && theirs.type == type) return;
  const std::string my_words = words_of_message(count, type);
  const std::string their_words = words_of_message(theirs.count, theirs.type);
  const int from = mine.sends ? rank() : mine.peer, to = mine.sends ? mine.peer : rank();
  fail(Code::invalid_argument,
       name_of_rank(from) + " sends " + (mine.sends ? my_words : their_words) +
           " where it should send " + (mine.sends ? their_words : my_words) + " to " +
           name_of_rank(to));
}

Coordinator::Call Coordinator::next_call(const Operation& o, int peer, bool sends) {
  heard_.resize(static_cast<std::size_t>(size()));
  std::deque<Call>& heard = heard_[static_cast<std::size_t>(peer)];
  const auto is_it = [&](const Call& call) { return (call.sends != 0) == sends; };
  auto found = std::find_if(heard.begin(), heard.end(), is_it);
  while (found == heard.end()) {
    Call call;
    move(o, {{false, peer, DType::u8, sizeof call, nullptr, &call}});
    heard.push_back(call);
    found = is_it(call) ? heard.end() - 1 : heard.end();
  }
  const Call call = *found;
  heard.erase(found);
  return call;
}

}  // namespace troupe::collective::internal
