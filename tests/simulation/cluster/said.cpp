/// Describes messages for the log of a replay (said.hpp).
#include "tests/simulation/cluster/said.hpp"

#include "troupe/runtime/wire/cases.hpp"

#include <type_traits>

namespace troupe::sim::cluster {
namespace {

using wire::Cases;

std::string text(ObjectId id) {
  return " " + id.str().substr(0, 6) + ":" + std::to_string(id.low);
}
std::string text(ActorId id) {
  return " " + id.str().substr(0, 6) + ":" + std::to_string(id.low);
}
std::string text(NodeId id) {
  return " n" + std::to_string(id.low);
}
std::string text(const std::string& words) {
  return " " + words;
}
template <class Number>
  requires std::is_arithmetic_v<Number> || std::is_enum_v<Number>
std::string text(Number number) {
  return " " + std::to_string(static_cast<std::int64_t>(number));
}
template <class Tag>
std::string text(troupe::Number<Tag> number) {
  return text(number.value);
}
/// Describes a life: the epoch of the control that gave it, and its number.
std::string life(std::uint64_t incarnation) {
  return " life " + std::to_string(incarnation >> 32) + "." +
         std::to_string(incarnation & 0xffffffffu);
}
template <class... Parts>
std::string line(const char* name, const Parts&... parts) {
  std::string all = name;
  ((all += text(parts)), ...);
  return all;
}

}  // namespace

std::string said(const wire::PeerMessage& message) {
  using namespace wire;
  return std::visit(
      Cases{
          [](const PeerFrame& m) { return line("Frame", m.from, m.to); },
          [](const PeerLeaseRequest& m) { return line("LeaseRequest", m.process, m.key, m.count); },
          [](const PeerLeaseWithdraw& m) { return line("LeaseWithdraw", m.process, m.key); },
          [](const PeerLeaseGranted& m) {
            return line("LeaseGranted", m.process, m.key, m.lease, m.worker);
          },
          [](const PeerLeaseRefused& m) {
            return line("LeaseRefused", m.process, m.key, m.count, m.why, m.for_ever);
          },
          [](const PeerLeaseReclaim& m) { return line("LeaseReclaim", m.process, m.lease); },
          [](const PeerLeaseReturned& m) { return line("LeaseReturned", m.process, m.lease); },
          [](const PeerConnect& m) {
            return line("Connect", m.process, m.worker, m.actor) + life(m.incarnation);
          },
          [](const PeerProcessGone& m) {
            return line("ProcessGone", m.process, m.peer, m.started, m.reason);
          },
          [](const PeerCredit& m) { return line("Credit", m.from, m.to, m.consumed); },
          [](const PeerHold& m) { return line("Hold", m.object, m.holder, m.delta); },
          [](const PeerAwait& m) { return line("Await", m.object); },
          [](const PeerReady& m) { return line("Ready", m.object, m.value.kind); },
          [](const PeerRebuild& m) { return line("Rebuild", m.object, m.lost); },
          [](const PullRequest& m) { return line("Pull", m.object); },
          [](const auto&) { return std::string("about transfers"); }},
      message);
}

std::string said(const control::ToControl& message) {
  using namespace control;
  return std::visit(
      Cases{[](const SpawnActor& m) {
              return line("SpawnActor", m.request, m.spec.id, m.spec.name, m.spec.detached);
            },
            [](const ActorStarted& m) {
              return line("ActorStarted", m.actor, m.worker) + life(m.incarnation);
            },
            [](const ActorStartFailed& m) {
              return line("ActorStartFailed", m.actor) + life(m.incarnation);
            },
            [](const ActorGone& m) {
              return line("ActorGone", m.actor, m.intended) + life(m.incarnation);
            },
            [](const KillActor& m) { return line("KillActor", m.actor, m.may_restart); },
            [](const HandlesGone& m) { return line("HandlesGone", m.actor); },
            [](const FindActor& m) { return line("FindActor", m.request, m.name); },
            [](const WatchActor& m) { return line("WatchActor", m.actor, m.on); },
            [](const NodeHosts& m) {
              std::string all = "NodeHosts";
              for (const HostedActor& one : m.actors)
                all += line("", one.spec.id, one.worker) + life(one.incarnation);
              return all;
            },
            [](const auto&) { return std::string("about nodes or jobs"); }},
      message);
}

std::string said(const control::FromControl& message) {
  using namespace control;
  return std::visit(
      Cases{[](const Registered& m) { return line("Registered", m.epoch, m.control_epoch); },
            [](const StartActorAt& m) {
              return line("StartActorAt", m.spec->id) + life(m.incarnation);
            },
            [](const StopActorAt& m) {
              return line("StopActorAt", m.actor, m.graceful, m.why) + life(m.incarnation);
            },
            [](const ActorReply& m) { return line("ActorReply", m.request, m.actor, m.created); },
            [](const ActorLocation& m) {
              return line("ActorLocation", m.actor, m.state, m.node, m.worker) +
                     life(m.incarnation);
            },
            [](const auto&) { return std::string("about nodes or jobs"); }},
      message);
}

}  // namespace troupe::sim::cluster
