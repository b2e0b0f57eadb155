/// Transfers of large objects between simulated nodes, with faults: connections close or fall
/// silent, and memory for a pull comes late.
#include "tests/simulation/cluster/bulk.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::sim::cluster {

using namespace std::chrono_literals;
using agent::ConnectionId;
using agent::PullId;
using agent::TransferId;
using agent::TransferPlan;

void BulkMoves::pull(NodeId from, ObjectId object, std::uint64_t bytes, Time now) {
  truth_.mark(bytes > agent::kSmallObject ? Mark::pulled_bulk : Mark::pulled);
  if (small_ && plan_.pulls() != 0) truth_.mark(Mark::transfers_small);
  plan_.pull(from, object, bytes, agent::Priority::get, now);
  run(now);
}

bool BulkMoves::on_message(NodeId from, const wire::PeerMessage& message, BlobView payload,
                           Time now) {
  if (const auto* request = std::get_if<wire::PullRequest>(&message)) {
    serve(from, *request);
  } else if (const auto* data = std::get_if<wire::PullData>(&message)) {
    const PullId pull = plan_.expects(from, TransferId::of(data->transfer), data->bytes);
    if (pull == 0) return true;
    std::uint64_t content = 0;
    if (payload.size() >= sizeof content) std::memcpy(&content, payload.data(), sizeof content);
    memory_[pull].content = content;
    plan_.arrived(from, TransferId::of(data->transfer), true, now);
  } else if (const auto* bulk = std::get_if<wire::PullOnBulk>(&message)) {
    plan_.on_bulk(from, TransferId::of(bulk->transfer), bulk->bytes, now);
  } else if (const auto* refused = std::get_if<wire::PullRefused>(&message)) {
    const Error why(*refused->error);
    if (plan_.takes_off(from, TransferId::of(refused->transfer), why))
      take_off(plan_.large(from, TransferId::of(refused->transfer)));
    plan_.refused(from, TransferId::of(refused->transfer), why, now);
  } else if (const auto* other = std::get_if<wire::PullElsewhere>(&message)) {
    take_off(plan_.large(from, TransferId::of(other->transfer)));
    plan_.elsewhere(from, TransferId::of(other->transfer), other->node, now);
  } else if (const auto* offer = std::get_if<wire::BulkOffer>(&message)) {
    serving_[from] = ConnectionId::of(offer->connection_low);
  } else {
    return false;
  }
  run(now);
  return true;
}

/// Returns a stamp that identifies one life of an object's bytes; never 0.
static std::uint64_t stamp_of(const wire::Location& at) {
  return mixed(std::uint64_t{at.segment} << 32 | at.slot, at.generation) | 1;
}

void BulkMoves::serve(NodeId from, const wire::PullRequest& request) {
  const auto refuse = [&](const char* why) {
    wire::PullRefused refused;
    refused.transfer = request.transfer;
    refused.error = Error(Code::object_lost, why).shared_info();
    out_.send_peer(from, refused, {});
  };
  if (random_.chance(trouble_ * 0.3)) {
    truth_.mark(Mark::pull_refused);
    ++truth_.breaks;
    return refuse("simulated: the memory cannot be read");
  }
  const auto held = out_.find(request.object);
  const Store::Object* object = held ? store_.find(held->location) : nullptr;
  if (object == nullptr) return refuse("the object is not here");
  const std::uint64_t length = held->location.length;
  if (length <= agent::kSmallObject) {
    Blob bytes(length);
    std::memcpy(bytes.data(), &object->content, sizeof object->content);
    out_.send_peer(from, wire::PullData{request.transfer, 0, length}, bytes);
    return;
  }
  const auto copy = copies_.find(Store::key_of(held->location));
  const std::uint64_t stamp = held->own               ? stamp_of(held->location)
                              : copy != copies_.end() ? copy->second
                                                      : 0;
  if (stamp == 0 || (request.offset != 0 && request.stamp != stamp))
    return refuse("it was computed again: its bytes are others");
  if (sends_elsewhere(from, request, *held, stamp)) return;
  const auto connection = serving_.find(from);
  if (connection == serving_.end()) return refuse("no bulk connection");
  truth_.check(request.offset < length, "bytes behind the end of an object are asked for");
  if (request.offset != 0) truth_.mark(Mark::resumed);
  out_.send_peer(from, wire::PullOnBulk{request.transfer, length}, {});
  Packet packet;
  packet.kind = Packet::Kind::bulk;
  packet.from = self_;
  packet.to = from;
  packet.connection = connection->second;
  truth_.on_bulk[{from, packet.connection}].insert(request.object);
  constexpr std::uint64_t kPiece = 256 << 10;
  for (std::uint64_t at = request.offset; at < length; at += kPiece) {
    if (random_.chance(trouble_ / 2)) {
      truth_.mark(Mark::bulk_lost);
      ++truth_.breaks;
      if (random_.chance(0.5)) return;  // the connection falls silent instead of closing
      packet.kind = Packet::Kind::bulk_end;
      return out_.send_bulk(std::move(packet));
    }
    const Piece piece{request.object, at, std::min(kPiece, length - at), stamp, object->content};
    Blob bytes(sizeof piece);
    std::memcpy(bytes.data(), &piece, sizeof piece);
    packet.bytes = std::make_shared<const Blob>(std::move(bytes));
    out_.send_bulk(packet);
  }
}

bool BulkMoves::sends_elsewhere(NodeId from, const wire::PullRequest& request, const Held& held,
                                std::uint64_t stamp) {
  if (!held.own) return false;
  const auto other = tree_.place(request.object, stamp, from, request.without,
                                 request.direct || request.offset != 0);
  if (!other) return false;
  truth_.mark(Mark::sent_elsewhere);
  out_.send_peer(from, wire::PullElsewhere{request.transfer, *other}, {});
  return true;
}

void BulkMoves::on_packet(const Packet& packet, Time now) {
  const auto found = inbound_.find(packet.connection);
  if (found == inbound_.end() || found->second.node != packet.from) return;
  if (packet.kind == Packet::Kind::bulk_end) {
    truth_.mark(Mark::bulk_closed);
    found->second.closing = "its other side closed it";
    ended_.emplace(now, packet.connection);
  } else if (packet.bytes && packet.bytes->size() == sizeof(Piece)) {
    Piece piece;
    std::memcpy(&piece, packet.bytes->data(), sizeof piece);
    plan_.heard(packet.from, packet.connection, now);
    if (!found->second.closing) on_piece(packet.from, packet.connection, piece, now);
  }
  on_tick(now);
}

/// Takes in a piece of an object. A piece behind a gap counts once the gap is filled.
void BulkMoves::on_piece(NodeId from, ConnectionId connection, const Piece& piece, Time now) {
  auto& expected = inbound_.at(connection).expected;
  const auto wanted = expected.find(piece.object);
  if (wanted == expected.end()) return;
  const PullId pull = wanted->second;
  Memory& memory = memory_.at(pull);
  if (memory.connection != connection) return;
  truth_.check(memory.have == 0 || memory.stamp == piece.stamp,
               "bytes of two lives of an object are put together");
  memory.stamp = piece.stamp;
  memory.content = piece.content;
  memory.ahead.emplace(piece.offset, piece.size);
  for (auto next = memory.ahead.begin();
       next != memory.ahead.end() && next->first <= memory.have;) {
    memory.have = std::max(memory.have, next->first + next->second);
    next = memory.ahead.erase(next);
  }
  if (memory.have < memory.bytes) return;
  truth_.on_bulk[{self_, connection}].erase(piece.object);
  expected.erase(wanted);
  plan_.received(from, connection, pull, now);
}

void BulkMoves::node_died(NodeId node, bool for_ever, Time now) {
  serving_.erase(node);
  tree_.node_died(node);
  plan_.node_died(node, for_ever, now);
  run(now);
}

void BulkMoves::on_tick(Time now) {
  if (now < next_deadline()) return;
  while (!ended_.empty() && ended_.begin()->first <= now) {
    const ConnectionId number = ended_.begin()->second;
    ended_.erase(ended_.begin());
    const auto found = inbound_.find(number);
    if (found == inbound_.end()) continue;
    const Inbound gone = std::move(found->second);
    inbound_.erase(found);
    for (auto& [pull, memory] : memory_)
      if (memory.connection == number) keep_part(pull, memory);
    plan_.connection_ended(gone.node, number,
                           Error(Code::unavailable, gone.closing.value_or("it was lost")), now);
  }
  while (!late_.empty() && late_.begin()->first <= now) {
    const auto [pull, bytes] = late_.begin()->second;
    late_.erase(late_.begin());
    give_memory(pull, bytes, now);
  }
  plan_.on_tick(now);
  run(now);
}

Time BulkMoves::next_deadline() const {
  const Time ends = ended_.empty() ? Time::max() : ended_.begin()->first;
  return std::min(
      {plan_.next_deadline(), ends, late_.empty() ? Time::max() : late_.begin()->first});
}

/// Removes a pull from its connection.
void BulkMoves::take_off(PullId pull) {
  const auto found = memory_.find(pull);
  if (found == memory_.end()) return;
  const auto inbound = inbound_.find(found->second.connection);
  if (inbound != inbound_.end())
    std::erase_if(inbound->second.expected,
                  [pull](const auto& entry) { return entry.second == pull; });
  keep_part(pull, found->second);
}

void BulkMoves::keep_part(PullId pull, Memory& memory) {
  memory.connection = 0;
  memory.ahead.clear();
  plan_.kept(pull, memory.have, memory.stamp);
}

void BulkMoves::give_memory(PullId pull, std::uint64_t bytes, Time now) {
  memory_[pull] = {.bytes = bytes};
  plan_.reserved(pull, now);
}

void BulkMoves::run(Time now) {
  for (auto actions = plan_.take_actions(); !actions.empty(); actions = plan_.take_actions())
    for (auto& action : actions) {
      if (const auto* reserve = std::get_if<TransferPlan::Reserve>(&action)) {
        if (random_.chance(trouble_)) {
          truth_.mark(Mark::memory_short);
          ++truth_.breaks;
          plan_.no_memory(reserve->pull, Error(Code::out_of_memory, "simulated"), now);
        } else if (small_ && random_.chance(0.2)) {
          const Time then = now + Duration(random_.below(300'000'000));
          late_.emplace(then, std::make_pair(reserve->pull, reserve->bytes));
        } else {
          give_memory(reserve->pull, reserve->bytes, now);
        }
      } else if (const auto* offer = std::get_if<TransferPlan::Offer>(&action)) {
        inbound_[offer->connection].node = offer->node;
        wire::BulkOffer message;
        message.connection_low = offer->connection.value;
        message.host = "sim";
        message.port = 1;
        message.key = std::string(32, 'k');
        out_.send_peer(offer->node, message, {});
      } else if (const auto* ask = std::get_if<TransferPlan::Ask>(&action)) {
        if (ask->connection != 0) {
          const auto inbound = inbound_.find(ask->connection);
          if (inbound == inbound_.end()) continue;  // the connection ended; the plan asks again
          inbound->second.expected[ask->object] = ask->pull;
          Memory& memory = memory_.at(ask->pull);
          memory.connection = ask->connection;
          truth_.check(memory.have == ask->have, "another part is asked for than is missing");
        }
        out_.send_peer(ask->node,
                       wire::PullRequest{ask->transfer.value, ask->object, ask->have, ask->stamp,
                                         ask->without, ask->direct},
                       {});
      } else if (const auto* close = std::get_if<TransferPlan::Close>(&action)) {
        if (!truth_.on_bulk[{self_, close->connection}].empty()) ++truth_.breaks;
        truth_.on_bulk.erase({self_, close->connection});
        inbound_[close->connection].closing = close->why;
        ended_.emplace(now + Duration(random_.below(5'000'000)), close->connection);
      } else if (const auto* complete = std::get_if<TransferPlan::Complete>(&action)) {
        const Memory memory = std::move(memory_.at(complete->pull));
        memory_.erase(complete->pull);
        if (!complete->wanted) continue;
        const wire::Location at = store_.add(0, memory.content, memory.bytes);
        if (memory.stamp != 0) copies_[Store::key_of(at)] = memory.stamp;
        out_.moved(complete->object, at);
      } else if (const auto* discard = std::get_if<TransferPlan::Discard>(&action)) {
        truth_.check(memory_.erase(discard->pull) != 0, "memory of a pull is given back twice");
      } else if (const auto* failed = std::get_if<TransferPlan::Failed>(&action)) {
        out_.move_failed(failed->object, failed->error);
      }
    }
  const std::string broken = plan_.check();
  if (!broken.empty()) truth_.fail("transfer plan: " + broken);
}

}  // namespace troupe::sim::cluster
