// Gangs of doors in one process, and a loop that moves links as a group does.
#pragma once

#include "troupe/actors/collective/tcp/door.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/units.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::collective {

using namespace std::chrono_literals;

inline Secret<32> gang_key(int seed = 1) {
  Secret<32> key;
  std::fill_n(key.data(), key.size(), static_cast<std::byte>(seed));
  return key;
}

inline Blob text(std::string_view s) {
  const auto* at = reinterpret_cast<const std::byte*>(s.data());
  return Blob(at, at + s.size());
}
inline std::string text(BlobView bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// Bytes that differ from place to place and from seed to seed.
inline Blob pattern(std::size_t size, std::size_t seed = 0) {
  Blob bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 7 + i / 251 + seed * 31) & 0xff);
  return bytes;
}

/// The doors of a gang that have met.
class Gang {
 public:
  explicit Gang(int size, const DoorOptions& like = {}) {
    for (int rank = 0; rank < size; ++rank) {
      DoorOptions options = like;
      options.rank = rank;
      doors_.push_back(std::make_unique<Door>(options));
    }
  }
  /// Lets all doors meet. `instead`: the address by which lower ranks know the last rank.
  void meet(const std::string& instead = "") {
    std::vector<std::string> addresses;
    for (const auto& door : doors_) addresses.push_back(door->address());
    if (!instead.empty()) addresses.back() = instead;
    for (const auto& door : doors_) door->meet(addresses, gang_key());
  }
  Door& operator[](int rank) { return *doors_[static_cast<std::size_t>(rank)]; }
  void close(int rank) { doors_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<Door>> doors_;
};

/// Moves links until `done`, and sleeps only in poll(2) on what they watch. Returns false at the
/// bound.
inline bool move(const std::vector<Link*>& links, const std::function<bool()>& done,
                 Duration bound = 10s) {
  const Time by = steady_now() + bound;
  while (true) {
    for (Link* link : links) link->advance();
    if (done()) return true;
    const Duration left = by - steady_now();
    if (left <= Duration::zero()) return false;
    int wait = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
    std::vector<pollfd> watched;
    for (const Link* link : links) {
      if (link->state() == Link::State::closed) continue;
      watched.push_back(link->watched());
      if (link->state() == Link::State::opening) wait = std::min(wait, 50);
      if (watched.back().fd < 0) wait = std::min(wait, 10);
    }
    ::poll(watched.data(), watched.size(), wait);
  }
}

inline bool is_open(const Link& link) {
  return link.state() == Link::State::open;
}
inline bool is_closed(const Link& link) {
  return link.state() == Link::State::closed;
}

/// Takes the next frame as "kind:text", or returns nothing that looks so.
inline std::string take(Link& link) {
  if (!link.has_frame()) return "none";
  const Frame frame = link.front();
  std::string out = std::to_string(static_cast<int>(frame.kind)) + ":" + text(frame.bytes);
  link.pop();
  return out;
}

}  // namespace troupe::collective
