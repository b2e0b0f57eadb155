/// One end of a sealed link over TCP.
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"
#include "troupe/actors/collective/tcp/internal/opening.hpp"
#include "troupe/actors/collective/tcp/internal/sealed_stream.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <memory>
#include <string>

namespace troupe::collective::internal {

class TcpLink final : public Link {
 public:
  TcpLink(int rank, int peer, std::unique_ptr<Opening> opening, SealedOutput output,
          SealedInput input);
  ~TcpLink() override;

  void advance() noexcept override;
  pollfd watched() const noexcept override;
  bool can_send() const noexcept override { return state_ != State::closed && output_.has_room(); }
  void send(FrameKind kind, std::span<const std::byte> bytes) noexcept override;
  bool is_flushed() const noexcept override { return output_.unwritten().empty(); }
  bool has_frame() const noexcept override { return input_.has_frame(); }
  Frame front() const noexcept override { return input_.front(); }
  void pop() noexcept override;
  State state() const noexcept override { return state_; }
  Code code() const noexcept override { return code_; }
  std::string why() const override { return why_; }

 private:
  bool is_open();
  void write() noexcept;
  void read();
  void refuse_forged();
  void end(const std::string& how);
  void close(Code code, std::string why);

  int rank_, peer_;
  std::unique_ptr<Opening> opening_;  ///< until the link is open
  SealedOutput output_;
  SealedInput input_;
  Fd fd_;
  bool reaches_peer_ = true;  ///< false after a write that failed: what is sent is dropped
  bool has_left_ = false;     ///< the peer's `left` has come
  State state_ = State::opening;
  Code code_ = Code::unavailable;
  std::string why_;
};

}  // namespace troupe::collective::internal
