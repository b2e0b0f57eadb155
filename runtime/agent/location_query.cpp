#include "troupe/runtime/agent/location_query.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::agent {
namespace {

/// Whether an answer replaces another: the enumerators of PlaceState are in order of knowledge.
bool says_more(wire::PlaceState state, wire::PlaceState than) {
  return static_cast<int>(state) > static_cast<int>(than);
}

}  // namespace

void LocationQuery::ask(ProcessIndex process, const wire::Locate& message, Time now) {
  const auto at = questions_.try_emplace(++next_).first;
  Question& question = at->second;
  question.process = process;
  question.request = message.request;
  question.until = now + patience_;
  for (const ObjectId object : message.objects) {
    Place& place = question.places.emplace_back();
    place.object = object;
    place.said.index = static_cast<std::uint32_t>(question.places.size() - 1);
    question.moved.insert(question.places.size() - 1);
  }
  advance(at);
}

void LocationQuery::next_round(std::uint64_t number, Question& question) {
  question.asked.assign(question.moved.begin(), question.moved.end());
  question.moved.clear();
  wire::PeerLocate message;
  for (const std::size_t at : question.asked) {
    Place& place = question.places[at];
    const wire::PeerPlace here = out_.place_of(place.object);
    take(question, at, here, self_);
    question.moved.erase(at);  // this node has followed it as far as it can
    message.objects.push_back(place.object);
  }
  // Each round has a number of its own, so that late answers to an earlier round are recognized.
  message.request = number * (kMostSteps + 1) + static_cast<std::uint64_t>(question.steps++);
  for (const NodeId node : out_.nodes_to_ask()) {
    question.silent.insert(node);
    out_.ask_place(node, message);
  }
}

void LocationQuery::take(Question& question, std::size_t at, const wire::PeerPlace& said,
                         NodeId from) {
  Place& place = question.places[at];
  if (said.forward && said.forward != place.object) {
    place.object = said.forward;
    question.moved.insert(at);
  }
  if (says_more(said.state, place.said.state)) {
    place.said.state = said.state;
    place.said.bytes = said.bytes;
  }
  if (!said.here) return;
  place.in_memory = place.in_memory || !said.spilled;
  auto& nodes = place.said.nodes;
  const bool known = std::find(nodes.begin(), nodes.end(), from) != nodes.end();
  if (!known && nodes.size() < wire::kMaxPlaces) nodes.push_back(from);
}

LocationQuery::Questions::iterator LocationQuery::advance(Questions::iterator at) {
  Question& question = at->second;
  while (question.silent.empty()) {
    if (question.moved.empty() || question.steps == kMostSteps) {
      answer(question);
      return questions_.erase(at);
    }
    next_round(at->first, question);
  }
  return std::next(at);
}

void LocationQuery::answered(NodeId from, const wire::PeerLocated& message) {
  const auto at = questions_.find(message.request / (kMostSteps + 1));
  if (at == questions_.end()) return;
  Question& question = at->second;
  const auto round = static_cast<int>(message.request % (kMostSteps + 1));
  if (round != question.steps - 1 || question.silent.erase(from) == 0) return;
  for (const wire::PeerPlace& place : message.places)
    if (place.index < question.asked.size())
      take(question, question.asked[place.index], place, from);
  advance(at);
}

wire::PeerLocated LocationQuery::answer_to(const wire::PeerLocate& message) {
  wire::PeerLocated answer{message.request, {}};
  for (std::size_t i = 0; i < message.objects.size(); ++i) {
    wire::PeerPlace place = out_.place_of(message.objects[i]);
    place.index = static_cast<std::uint32_t>(i);
    if (place.state != wire::PlaceState::unknown || place.forward) answer.places.push_back(place);
  }
  return answer;
}

void LocationQuery::node_died(NodeId node) {
  for (auto at = questions_.begin(); at != questions_.end();)
    at = at->second.silent.erase(node) != 0 ? advance(at) : std::next(at);
}

void LocationQuery::process_died(ProcessIndex process) {
  std::erase_if(questions_, [&](const auto& entry) { return entry.second.process == process; });
}

void LocationQuery::answer(Question& question) {
  constexpr std::size_t kIds = 512;  // ids in one message; a ring's frame takes that many
  wire::Located piece{question.request, {}};
  std::size_t ids = 0;
  for (Place& place : question.places) {
    place.said.spilled = !place.said.nodes.empty() && !place.in_memory;
    ids += 2 + place.said.nodes.size();
    if (ids > kIds) {
      piece.more = true;
      out_.located(question.process, std::exchange(piece, {question.request, {}}));
      ids = 2 + place.said.nodes.size();
    }
    piece.places.push_back(std::move(place.said));
  }
  out_.located(question.process, piece);
}

void LocationQuery::carry_out(Time now) {
  for (auto at = questions_.begin(); at != questions_.end();) {
    if (at->second.until > now) {
      ++at;
      continue;
    }
    answer(at->second);
    at = questions_.erase(at);
  }
}

Time LocationQuery::next_deadline() const {
  Time due = Time::max();
  for (const auto& [number, question] : questions_) due = std::min(due, question.until);
  return due;
}

}  // namespace troupe::agent
