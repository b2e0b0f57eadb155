#include "troupe/runtime/cli/observer.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/observe/answer_bytes.hpp"
#include "troupe/runtime/os/local_listener.hpp"

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::cli {
namespace {

constexpr std::uint64_t kMaxAnswer = 16 << 20;

Error gone() {
  return Error(Code::unavailable, "the node's agent closed the connection");
}

wire::Inquire about_rows(const observe::Question& asked) {
  wire::Inquire question;
  question.about = wire::Inquire::About::rows;
  question.rows = {static_cast<std::uint8_t>(asked.kind), asked.limit, asked.where, asked.sort,
                   asked.after};
  return question;
}

}  // namespace

Error Observer::lose(Error why) {
  is_lost_ = true;
  return why;
}

Result<wire::Decoded<wire::NodeMessage>> Observer::next(Time until) {
  for (;;) {
    const os::Received received = socket_.receive(*packet_);
    if (received.kind == os::Received::Kind::packet) {
      auto decoded = wire::decode_node(BlobView(packet_->data(), received.size));
      if (!decoded) return decoded.error();
      if (const auto* shutdown = std::get_if<wire::Shutdown>(&decoded->message))
        return lose(Error(Code::unavailable, "the node's agent refused: " + shutdown->why));
      return std::move(*decoded);
    }
    if (received.kind == os::Received::Kind::closed) return lose(gone());
    if (received.kind == os::Received::Kind::starved)
      return Error(
          Code::out_of_memory,
          std::string("no descriptor is left for the node's answer: ") + memory_remedy(EMFILE));
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max<Duration>(until - steady_now(), Duration(0)));
    pollfd entry{socket_.fd(), POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left.count()));
    if (ready == 0) return Error(Code::timed_out, "the node's agent did not answer in time");
    if (ready < 0 && errno != EINTR) return lose(gone());
  }
}

Result<Observer> Observer::connect(const std::string& socket_name, Duration limit) {
  auto visitor = os::knock(socket_name);
  if (!visitor) return visitor.error();
  Observer observer;
  observer.socket_ = os::LocalSocket(std::move(visitor->socket));
  observer.packet_ = std::make_unique<std::array<std::byte, os::kMaxPacket>>();
  wire::Hello hello;
  hello.protocol = kProtocolVersion;
  hello.build = TROUPE_VERSION_TEXT;
  hello.kind = wire::ProcessKind::observer;
  hello.pid = static_cast<std::uint32_t>(getpid());
  wire::FrameWriter writer;
  if (!observer.socket_.send(writer.encode(wire::NodeMessage(hello)), {})) return gone();
  auto answer = observer.next(steady_now() + limit);
  if (!answer) return answer.error();
  const auto* welcome = std::get_if<wire::Welcome>(&answer->message);
  if (welcome == nullptr)
    return Error(Code::unavailable, "the node's agent answered with something else than a welcome");
  if (welcome->protocol != kProtocolVersion)
    return Error(Code::unavailable,
                 "the node speaks protocol " + std::to_string(welcome->protocol) +
                     ", this command protocol " + std::to_string(kProtocolVersion) +
                     ": use the same troupe on both sides");
  observer.node_ = welcome->node;
  observer.node_name_ = welcome->node_name;
  return observer;
}

Result<void> Observer::send(wire::Inquire question, BlobView payload) {
  question.request = ++request_;
  wire::FrameWriter writer;
  const BlobView message = writer.encode(wire::NodeMessage(question));
  Blob frame(message.begin(), message.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  if (!socket_.send(frame, {})) return lose(gone());
  return {};
}

/// Returns the answers to the last so many questions, in their order. Answers to earlier ones are
/// dropped.
std::vector<Result<Blob>> Observer::answers(std::size_t questions, Time until) {
  struct Open {
    Blob whole;
    std::optional<Error> error;
    bool is_whole = false;
  };
  std::vector<Open> open(questions);
  const std::uint64_t first = request_ + 1 - questions;
  std::size_t missing = questions;
  std::optional<Error> lost;  // no more answers come
  while (missing > 0 && !lost) {
    auto next_one = next(until);
    if (!next_one) {
      lost = next_one.error();
      continue;
    }
    const auto* answer = std::get_if<wire::Answer>(&next_one->message);
    if (answer == nullptr || answer->request < first || answer->request > request_) continue;
    Open& one = open[answer->request - first];
    if (one.is_whole || one.error) continue;
    const std::uint64_t size = next_one->payload.size();
    if (answer->error)
      one.error = Error(*answer->error);
    else if (answer->bytes > kMaxAnswer || answer->offset != one.whole.size() ||
             size > answer->bytes - one.whole.size())
      one.error =
          Error(Code::unavailable, "the node's agent sent a piece that does not fit its answer");
    else
      one.whole.insert(one.whole.end(), next_one->payload.begin(), next_one->payload.end());
    one.is_whole = !one.error && one.whole.size() == answer->bytes;
    if (!one.error && !one.is_whole && size == 0)
      one.error = Error(Code::unavailable, "the node's agent sent an empty piece");
    if (one.error || one.is_whole) --missing;
  }
  std::vector<Result<Blob>> all;
  for (Open& one : open) {
    if (one.is_whole)
      all.emplace_back(std::move(one.whole));
    else
      all.emplace_back(one.error ? *one.error : lost.value_or(gone()));
  }
  return all;
}

Result<Blob> Observer::ask(const wire::Inquire& question, BlobView payload, Time until) {
  if (const auto sent = send(question, payload); !sent) return sent.error();
  return std::move(answers(1, until).front());
}

Result<control::FromControl> Observer::ask_control(const control::ToControl& question, Time until) {
  auto bytes = ask({}, control::encode(question), until);
  if (!bytes) return bytes.error();
  return control::decode_from_control(*bytes);
}

Result<control::ListReply> Observer::list(control::ListRequest::What what, Duration limit) {
  control::ListRequest request;
  request.request = request_ + 1;
  request.what = what;
  auto message = ask_control(request, steady_now() + limit);
  if (!message) return message.error();
  auto* reply = std::get_if<control::ListReply>(&*message);
  if (reply == nullptr)
    return Error(Code::unavailable, "control answered with something else than a list");
  return std::move(*reply);
}

Result<std::optional<control::ObjectName>> Observer::forget(const std::string& name,
                                                            Duration limit) {
  control::NameObject request;
  request.verb = control::NameObject::Verb::forget;
  request.what.name = name;
  auto message = ask_control(request, steady_now() + limit);
  if (!message) return message.error();
  auto* reply = std::get_if<control::NamedObject>(&*message);
  if (reply == nullptr)
    return Error(Code::unavailable, "control answered with something else than a name's end");
  if (reply->error) return Error(*reply->error);
  if (!reply->done) return std::optional<control::ObjectName>();
  return std::optional(std::move(reply->what));
}

Result<void> Observer::drain(NodeId node, Duration within, Duration limit) {
  control::DrainRequest request;
  request.node = node;
  request.within = within;
  auto message = ask_control(request, steady_now() + limit);
  if (!message) return message.error();
  return {};
}

Result<wire::LogBatch> Observer::logs(NodeId node, const wire::LogQuestion& asked, Duration limit) {
  wire::Inquire question;
  question.about = wire::Inquire::About::logs;
  question.node = node;
  question.logs = asked;
  auto bytes = ask(question, {}, steady_now() + limit);
  if (!bytes) return bytes.error();
  return wire::decode_log_batch(*bytes);
}

Result<observe::Answer> Observer::rows(const observe::Question& asked, Duration limit) {
  auto bytes = ask(about_rows(asked), {}, steady_now() + limit);
  if (!bytes) return bytes.error();
  return observe::decode_answer(*bytes);
}

Result<std::string> Observer::stacks(NodeId node, const wire::StackQuestion& asked,
                                     Duration limit) {
  wire::Inquire question;
  question.about = wire::Inquire::About::stacks;
  question.node = node;
  question.stacks = asked;
  auto bytes = ask(question, {}, steady_now() + limit);
  if (!bytes) return bytes.error();
  return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

Result<void> Observer::stop_job(NodeId node, const wire::StopQuestion& asked, Duration limit) {
  wire::Inquire question;
  question.about = wire::Inquire::About::stop;
  question.node = node;
  question.stop = asked;
  auto bytes = ask(question, {}, steady_now() + limit);
  if (!bytes) return bytes.error();
  return {};
}

Observer::Objects Observer::objects(const std::vector<NodeId>& nodes,
                                    const observe::Question& asked, Duration limit) {
  const Time until = steady_now() + limit;
  std::optional<Error> lost;
  for (const NodeId node : nodes) {
    wire::Inquire question;
    question.about = wire::Inquire::About::memory;
    question.node = node;
    if (const auto sent = send(question, {}); !sent) lost = sent.error();
  }
  if (const auto sent = send(about_rows(asked), {}); !sent) lost = sent.error();
  if (lost) return {{nodes.size(), *lost}, *lost};
  const std::vector<Result<Blob>> all = answers(nodes.size() + 1, until);
  Objects objects{{}, all.back() ? observe::decode_answer(*all.back()) : all.back().error()};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (all[i])
      objects.reports.push_back(wire::decode_memory(*all[i]));
    else
      objects.reports.emplace_back(all[i].error());
  }
  return objects;
}

Result<wire::MemoryReport> Observer::memory(NodeId node, Duration limit) {
  wire::Inquire question;
  question.about = wire::Inquire::About::memory;
  question.node = node;
  auto bytes = ask(question, {}, steady_now() + limit);
  if (!bytes) return bytes.error();
  return wire::decode_memory(*bytes);
}

}  // namespace troupe::cli
