/// Loopback: the link of a rank to itself. What it sends is what it receives.
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"

#include <deque>
#include <string>
#include <vector>

namespace troupe::collective::nodes {

class Loopback final : public Link {
 public:
  void advance() noexcept override {}
  pollfd watched() const noexcept override { return {-1, 0, 0}; }
  bool can_send() const noexcept override { return bytes_ < kRoom; }
  void send(FrameKind kind, std::span<const std::byte> bytes) noexcept override {
    frames_.push_back({kind, {bytes.begin(), bytes.end()}});
    bytes_ += bytes.size();
  }
  bool is_flushed() const noexcept override { return true; }
  bool has_frame() const noexcept override { return !frames_.empty(); }
  Frame front() const noexcept override { return {frames_.front().kind, frames_.front().bytes}; }
  void pop() noexcept override {
    bytes_ -= frames_.front().bytes.size();
    frames_.pop_front();
  }
  State state() const noexcept override { return State::open; }
  Code code() const noexcept override { return Code::internal; }
  std::string why() const override { return {}; }

 private:
  static constexpr std::size_t kRoom = std::size_t{1} << 16;
  struct Kept {
    FrameKind kind;
    std::vector<std::byte> bytes;
  };
  std::deque<Kept> frames_;
  std::size_t bytes_ = 0;
};

}  // namespace troupe::collective::nodes
