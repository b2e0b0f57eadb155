#include "tests/simulation/cluster/bulk.hpp"

#include <cstring>

namespace troupe::sim::cluster {

using namespace std::chrono_literals;
using agent::TransferPlan;

void BulkMoves::pull(NodeId from, ObjectId object, std::uint64_t bytes, Time now) {
  truth_.mark(bytes > agent::kSmallObject ? Mark::pulled_bulk : Mark::pulled);
  plan_.pull(from, object, bytes, agent::Priority::get, now);
  run(now);
}

bool BulkMoves::on_message(NodeId from, const wire::PeerMessage& message, BlobView payload,
                           Time now) {
  if (const auto* request = std::get_if<wire::PullRequest>(&message)) {
    serve(from, *request, now);
  } else if (const auto* data = std::get_if<wire::PullData>(&message)) {
    const std::uint64_t pull = plan_.expects(from, data->transfer, data->bytes);
    if (pull == 0) return true;
    std::uint64_t content = 0;
    if (payload.size() >= sizeof content) std::memcpy(&content, payload.data(), sizeof content);
    memory_[pull] = content;
    plan_.arrived(from, data->transfer, true, now);
  } else if (const auto* bulk = std::get_if<wire::PullOnBulk>(&message)) {
    plan_.on_bulk(from, bulk->transfer, bulk->bytes, now);
  } else if (const auto* refused = std::get_if<wire::PullRefused>(&message)) {
    plan_.refused(from, refused->transfer, Error(*refused->error), now);
  } else if (const auto* offer = std::get_if<wire::BulkOffer>(&message)) {
    serving_[from] = offer->connection_low;
  } else {
    return false;
  }
  run(now);
  return true;
}

void BulkMoves::serve(NodeId from, const wire::PullRequest& request, Time) {
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
  const auto at = out_.find(request.object);
  const Store::Object* object = at ? store_.find(*at) : nullptr;
  if (object == nullptr) return refuse("the object is not here");
  if (at->length <= agent::kSmallObject) {
    Blob bytes(at->length);
    std::memcpy(bytes.data(), &object->content, sizeof object->content);
    out_.send_peer(from, wire::PullData{request.transfer, 0, at->length}, bytes);
    return;
  }
  out_.send_peer(from, wire::PullOnBulk{request.transfer, at->length}, {});
  const auto connection = serving_.find(from);
  if (connection == serving_.end()) return refuse("no bulk connection");
  Packet packet;
  packet.kind = Packet::Kind::bulk;
  packet.from = self_;
  packet.to = from;
  packet.connection = connection->second;
  packet.content = object->content;
  packet.bytes = std::make_shared<const Blob>(Blob(16));
  auto& id = const_cast<Blob&>(*packet.bytes);
  std::memcpy(id.data(), &request.object.high, 8);
  std::memcpy(id.data() + 8, &request.object.low, 8);
  if (random_.chance(trouble_)) {
    truth_.mark(Mark::bulk_lost);
    ++truth_.breaks;
    packet.kind = Packet::Kind::bulk_end;
    if (random_.chance(0.5)) return;  // silence
  }
  truth_.on_bulk[{from, packet.connection}].insert(request.object);
  out_.send_bulk(std::move(packet));
}

void BulkMoves::on_packet(const Packet& packet, Time now) {
  const auto found = inbound_.find(packet.connection);
  if (found == inbound_.end() || found->second.node != packet.from) return;
  if (packet.kind == Packet::Kind::bulk_end) {
    truth_.mark(Mark::bulk_closed);
    found->second.closing = "its other side closed it";
    ended_.emplace(now, packet.connection);
  } else if (packet.bytes && packet.bytes->size() == 16) {
    ObjectId object;
    std::memcpy(&object.high, packet.bytes->data(), 8);
    std::memcpy(&object.low, packet.bytes->data() + 8, 8);
    truth_.on_bulk[{self_, packet.connection}].erase(object);
    plan_.heard(packet.from, packet.connection, now);
    const auto expected = found->second.expected.find(object);
    if (expected != found->second.expected.end() && !found->second.closing) {
      const std::uint64_t pull = expected->second;
      found->second.expected.erase(expected);
      memory_[pull] = packet.content;
      plan_.received(packet.from, packet.connection, pull, now);
    }
  }
  on_tick(now);
}

void BulkMoves::node_died(NodeId node, bool for_ever, Time now) {
  plan_.node_died(node, for_ever, now);
  serving_.erase(node);
  run(now);
}

void BulkMoves::on_tick(Time now) {
  while (!ended_.empty() && ended_.begin()->first <= now) {
    const std::uint64_t number = ended_.begin()->second;
    ended_.erase(ended_.begin());
    const auto found = inbound_.find(number);
    if (found == inbound_.end()) continue;
    const Inbound gone = std::move(found->second);
    inbound_.erase(found);
    plan_.connection_ended(gone.node, number,
                           Error(Code::unavailable, gone.closing.value_or("it was lost")), now);
  }
  plan_.on_tick(now);
  run(now);
}

Time BulkMoves::next_deadline() const {
  return std::min(plan_.next_deadline(), ended_.empty() ? Time::max() : ended_.begin()->first);
}

void BulkMoves::run(Time now) {
  for (auto actions = plan_.take_actions(); !actions.empty(); actions = plan_.take_actions())
    for (auto& action : actions) {
      if (const auto* reserve = std::get_if<TransferPlan::Reserve>(&action)) {
        if (random_.chance(trouble_)) {
          truth_.mark(Mark::memory_short);
          ++truth_.breaks;
          plan_.no_memory(reserve->pull, Error(Code::out_of_memory, "simulated"), now);
        } else {
          memory_[reserve->pull] = 0;
          plan_.reserved(reserve->pull, now);
        }
      } else if (const auto* offer = std::get_if<TransferPlan::Offer>(&action)) {
        inbound_[offer->connection].node = offer->node;
        wire::BulkOffer message;
        message.connection_low = offer->connection;
        message.host = "sim";
        message.port = 1;
        message.key = std::string(32, 'k');
        out_.send_peer(offer->node, message, {});
      } else if (const auto* ask = std::get_if<TransferPlan::Ask>(&action)) {
        if (ask->connection != 0) inbound_[ask->connection].expected[ask->object] = ask->pull;
        out_.send_peer(ask->node, wire::PullRequest{ask->transfer, ask->object}, {});
      } else if (const auto* close = std::get_if<TransferPlan::Close>(&action)) {
        if (!truth_.on_bulk[{self_, close->connection}].empty()) ++truth_.breaks;
        truth_.on_bulk.erase({self_, close->connection});
        inbound_[close->connection].closing = close->why;
        ended_.emplace(now + Duration(random_.below(5'000'000)), close->connection);
      } else if (const auto* complete = std::get_if<TransferPlan::Complete>(&action)) {
        const std::uint64_t content = memory_.at(complete->pull);
        memory_.erase(complete->pull);
        if (complete->wanted) out_.moved(complete->object, store_.add(0, content, 64 << 10));
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
