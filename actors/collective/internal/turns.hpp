/// Turns: messages of which only the first of each peer and direction moves. Those behind it wait.
#pragma once

#include "troupe/actors/collective/communicator.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe::collective::internal {

class Turns {
 public:
  explicit Turns(std::vector<Transfers::One> messages) : waiting_(std::move(messages)) {}
  /// Calls begin(message) for each message that no stream in progress goes before; begin() adds
  /// its stream to `streams`. Stream::what() returns the message of a stream.
  template <class Streams, class Begin>
  void begin_next(const Streams& streams, const Begin& begin) {
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      const bool behind = std::any_of(streams.begin(), streams.end(), [&](const auto& stream) {
        return stream.what().sends == one->sends && stream.what().peer == one->peer;
      });
      if (behind) {
        ++one;
        continue;
      }
      begin(*one);
      one = waiting_.erase(one);
    }
  }

 private:
  std::vector<Transfers::One> waiting_;
};

}  // namespace troupe::collective::internal
