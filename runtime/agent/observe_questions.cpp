#include "troupe/runtime/agent/observe_questions.hpp"

#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/observe/answer_bytes.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::agent {
namespace {

using observe::RowKind;

/// Kinds of which drivers and workers know rows.
bool is_known_to_processes(RowKind kind) {
  return kind == RowKind::tasks || observe::adds_up(kind) || kind == RowKind::waits ||
         kind == RowKind::objects;
}

}  // namespace

void ObserveQuestions::ask(const Asker& asker, const wire::ListQuestion& question, Time now) {
  const auto kind = observe::row_kind_of(question.kind);
  if (!kind)
    return out_.refuse(asker, Error(Code::invalid_argument,
                                    "the question is about rows of a kind "
                                    "that this node does not know"));
  if (open_.size() >= kMostOpen)
    return out_.refuse(asker, Error(Code::overloaded,
                                    "the node has too many questions to answer: ask "
                                    "again in a second"));
  auto query = observe::Query::parse({.kind = *kind,
                                      .where = question.where,
                                      .sort = question.sort,
                                      .limit = question.limit,
                                      .after = question.after});
  if (!query) return out_.refuse(asker, query.error());
  const std::uint64_t number = next_++;
  const auto at = open_.emplace(number, std::make_unique<Open>(asker, std::move(*query))).first;
  Open& open = *at->second;
  look(open);
  if (is_known_to_processes(*kind))
    for (const ProcessSource& source : out_.processes())
      open.processes[source.process] = {out_.node_name(), source.pid, now + kProcessAnswers};
  if (!asker.node)
    for (NodeSource& source : out_.other_nodes()) {
      if (source.dead.empty())
        open.nodes[source.node] = {std::move(source.name), 0, now + kNodeAnswers, {}, 0,
                                   std::move(source.late)};
      else
        open.merge.add_unanswered(source.name, 0, source.dead);
    }
  for (const auto& [process, source] : open.processes)
    out_.ask_process(process, {number, question});
  wire::PeerInquire inquire;
  inquire.request = number;
  inquire.rows = question;
  for (const auto& [node, source] : open.nodes) out_.ask_node(node, inquire);
  finish(at);
}

/// Adds rows of the agent itself.
void ObserveQuestions::look(Open& open) {
  if (!open.looks || out_.add_own(open.query, open.own, open.place)) return;
  open.looks = false;
  open.merge.add(open.own.take());
}

/// Adds a piece of a source's answer. Returns whether the source has nothing more to say.
bool ObserveQuestions::add_piece(Open& open, Source& source, std::uint64_t offset,
                                 std::uint64_t whole, BlobView piece) {
  const auto refuse = [&](const char* why) {
    open.merge.add_unanswered(source.node, source.pid, why);
    return true;
  };
  const std::uint64_t had = source.bytes.size();
  if (whole > observe::kMaxAnswerBytes) return refuse("its answer is too long");
  if (piece.empty() || offset != had || (had != 0 && whole != source.whole) ||
      piece.size() > whole - had)
    return refuse("its answer is damaged");
  source.whole = whole;
  source.bytes.insert(source.bytes.end(), piece.begin(), piece.end());
  if (source.bytes.size() < whole) return false;
  auto answer = observe::decode_answer(source.bytes);
  if (!answer) return refuse("its answer is damaged");
  open.merge.add(std::move(*answer), source.node, source.pid);
  return true;
}

void ObserveQuestions::process_answered(ProcessIndex from, const wire::GiveRows& message,
                                        BlobView payload) {
  const auto at = open_.find(message.request);
  if (at == open_.end()) return;  // it was late
  Open& open = *at->second;
  const auto source = open.processes.find(from);
  if (source == open.processes.end()) return;
  if (message.why.empty()) {
    if (!add_piece(open, source->second, message.offset, message.bytes, payload)) return;
  } else {
    open.merge.add_unanswered(source->second.node, source->second.pid, message.why);
  }
  open.processes.erase(source);
  finish(at);
}

bool ObserveQuestions::node_answered(NodeId from, const wire::PeerAnswer& message,
                                     BlobView payload) {
  const auto at = open_.find(message.request);
  // Numbers of this part that are not open were late.
  if (at == open_.end()) return message.request >> 61 == 1;
  Open& open = *at->second;
  const auto source = open.nodes.find(from);
  if (source == open.nodes.end()) return true;
  if (!message.error) {
    if (!add_piece(open, source->second, message.offset, message.bytes, payload)) return true;
  } else {
    open.merge.add_unanswered(source->second.node, 0, message.error->message);
  }
  open.nodes.erase(source);
  finish(at);
  return true;
}

void ObserveQuestions::process_died(ProcessIndex process) {
  for (auto at = open_.begin(); at != open_.end();) {
    const auto one = at++;
    if (one->second->asker.is(process)) {
      open_.erase(one);
    } else if (one->second->processes.erase(process) != 0) {
      finish(one);
    }
  }
}

void ObserveQuestions::node_died(NodeId node, const std::string& why) {
  for (auto at = open_.begin(); at != open_.end();) {
    const auto one = at++;
    Open& open = *one->second;
    if (open.asker.is(node)) {
      open_.erase(one);
      continue;
    }
    const auto source = open.nodes.find(node);
    if (source == open.nodes.end()) continue;
    open.merge.add_unanswered(source->second.node, 0, why);
    open.nodes.erase(source);
    finish(one);
  }
}

void ObserveQuestions::on_timer(Time now) {
  const auto expire = [&](Open& open, auto& sources, const std::string& why) {
    for (auto at = sources.begin(); at != sources.end();) {
      const Source& source = at->second;
      if (source.until > now) {
        ++at;
        continue;
      }
      open.merge.add_unanswered(source.node, source.pid,
                                source.late.empty() ? why : why + (", and " + source.late));
      at = sources.erase(at);
    }
  };
  for (auto at = open_.begin(); at != open_.end();) {
    const auto one = at++;
    Open& open = *one->second;
    look(open);
    expire(open, open.processes, "no answer in 1 s");
    expire(open, open.nodes, "no answer in 1.5 s");
    finish(one);
  }
}

Time ObserveQuestions::next_deadline() const {
  Time until = Time::max();
  for (const auto& [number, open] : open_) {
    if (open->looks) return Time{};
    for (const auto& [process, source] : open->processes) until = std::min(until, source.until);
    for (const auto& [node, source] : open->nodes) until = std::min(until, source.until);
  }
  return until;
}

/// Answers the question if no source is left.
void ObserveQuestions::finish(Opens::iterator at) {
  Open& open = *at->second;
  if (open.looks || !open.processes.empty() || !open.nodes.empty()) return;
  const Asker asker = open.asker;
  Blob bytes = observe::encode(open.merge.take(unix_nanoseconds()));
  open_.erase(at);
  out_.answer(asker, std::move(bytes));
}

}  // namespace troupe::agent
