#include "troupe/runtime/agent/inquiries.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

/// An answer to an observer leaves in pieces that fit a packet.
constexpr std::size_t kAnswerPiece = 12 * 1024;
constexpr std::size_t kPeerPiece = 256 * 1024;
/// Control or another agent has this long for its whole answer.
constexpr Duration kInquiryLasts = std::chrono::seconds(20);
/// Most answers that wait for one node to take them.
constexpr std::size_t kMaxOwed = 8;

}  // namespace

// --- questions

std::uint64_t Inquiries::note(ProcessIndex from, std::uint64_t request, NodeId node, Time now) {
  const Time until = now + kInquiryLasts;
  inquiries_[next_] = {from, request, node, until};
  due_ = std::min(due_, until);
  return next_++;
}

void Inquiries::on_reply(std::uint64_t number, const control::FromControl& message) {
  const auto known = inquiries_.extract(number);
  if (known) answer(known.mapped().process, known.mapped().request, control::encode(message));
}

void Inquiries::on_answer(NodeId from, const wire::PeerAnswer& message, BlobView payload) {
  const auto at = inquiries_.find(message.request);
  if (at == inquiries_.end() || at->second.node != from) return;
  const bool is_last = payload.empty() || message.offset + payload.size() >= message.bytes;
  const Inquiry inquiry = at->second;
  if (is_last || message.error) inquiries_.erase(at);
  if (message.error) return refuse(inquiry.process, inquiry.request, Error(*message.error));
  if (payload.empty())
    return refuse(inquiry.process, inquiry.request,
                  Error(Code::unavailable, "the node answered with nothing"));
  answer(inquiry.process, inquiry.request, payload, message.offset, message.bytes);
}

void Inquiries::end(NodeId node, const Error& why) {
  for (auto at = inquiries_.begin(); at != inquiries_.end();) {
    const Inquiry inquiry = at->second;
    at = inquiry.node == node ? inquiries_.erase(at) : std::next(at);
    if (inquiry.node == node) refuse(inquiry.process, inquiry.request, why);
  }
}

void Inquiries::expire(Time now) {
  due_ = Time::max();
  for (auto at = inquiries_.begin(); at != inquiries_.end();) {
    const Inquiry inquiry = at->second;
    if (inquiry.until > now) {
      due_ = std::min(due_, inquiry.until);
      ++at;
      continue;
    }
    at = inquiries_.erase(at);
    refuse(inquiry.process, inquiry.request,
           Error(Code::timed_out, "no answer within 20 s", Outcome::unknown));
  }
}

// --- answers

void Inquiries::answer(const Asker& to, Blob bytes) {
  if (to.node) return owe(to.node, to.request, std::move(bytes));
  answer(to.process, to.request, bytes);
}

void Inquiries::refuse(const Asker& to, const Error& why) {
  if (to.node) return out_.send(to.node, wire::PeerAnswer{to.request, 0, 0, why.shared_info()}, {});
  refuse(to.process, to.request, why);
}

void Inquiries::refuse(ProcessIndex to, std::uint64_t request, const Error& why) {
  wire::Answer answer;
  answer.request = request;
  answer.error = why.shared_info();
  out_.send(to, answer, {});
}

/// Sends a part of an answer: `bytes` are at `offset` in an answer of `whole` bytes.
void Inquiries::answer(ProcessIndex to, std::uint64_t request, BlobView bytes, std::uint64_t offset,
                       std::uint64_t whole) {
  for (std::size_t at = 0; at < bytes.size(); at += kAnswerPiece)
    out_.send(to, wire::Answer{request, offset + at, whole, nullptr},
              bytes.subspan(at, std::min(kAnswerPiece, bytes.size() - at)));
}

void Inquiries::owe(NodeId to, std::uint64_t request, Blob bytes) {
  std::deque<Owed>& owed = owed_[to];
  if (owed.size() >= kMaxOwed) {
    const Error busy(Code::overloaded, "the node has sent too many reports that were not taken");
    return refuse({{}, to, request}, busy);
  }
  owed.push_back({request, std::move(bytes)});
  send_owed(to);
}

void Inquiries::send_owed(NodeId to) {
  const auto at = owed_.find(to);
  if (at == owed_.end()) return;
  std::deque<Owed>& owed = at->second;
  while (!owed.empty() && out_.can_send(to)) {
    Owed& first = owed.front();
    const BlobView piece =
        BlobView(first.bytes)
            .subspan(first.sent, std::min(kPeerPiece, first.bytes.size() - first.sent));
    out_.send(to, wire::PeerAnswer{first.request, first.sent, first.bytes.size(), nullptr}, piece);
    first.sent += piece.size();
    if (first.sent == first.bytes.size()) owed.pop_front();
  }
  if (owed.empty()) owed_.erase(at);
}

}  // namespace troupe::agent
