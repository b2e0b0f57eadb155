/// Node as a member of a cluster: its handling of messages from control and from agents of other
/// nodes, and of their loss.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/base/version.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/wire/cases.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

namespace troupe::agent {
namespace {

using wire::Cases;

constexpr Duration kLeaveWait = std::chrono::milliseconds(200);

/// Returns the folder in which programs of jobs are kept, also from one cluster to the next.
std::string cache_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder != nullptr && *folder == '/')
    return std::string(folder) + "/troupe/programs";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/troupe/programs";
  return "/tmp/troupe-" + std::to_string(geteuid()) + "/programs";
}

}  // namespace

void Node::join(os::AgentConfig config) {
  const Time now = steady_now();
  NetworkOptions options;
  options.self.id = id_;
  options.self.name = config.name;
  options.self.resources = leases_.self_view().total;
  options.self.labels = options_.labels;
  options.self.beside_control = config.beside_control;
  options.keys = std::move(config.keys);
  options.control.node = config.control.node;
  options.control.key = config.control.key;
  options.control.door = config.control.door;
  options.listen = config.listen;
  options.build_id = TROUPE_VERSION_TEXT;
  network_ = Network::open(std::move(options), *this, now).value();
  TransfersOptions transfers;
  transfers.host = host_of(config.listen);
  // Memory that waits for bytes cannot be spilled, so transfers may not take all of it.
  const std::uint64_t arena = host_->stats().arena;
  transfers.plan.all_bytes = std::min(transfers.plan.all_bytes, arena / 2);
  transfers.plan.node_bytes = std::min(transfers.plan.node_bytes, arena / 4);
  if (extents_.spiller() != nullptr) transfers.plan.patience = std::chrono::seconds(20);
  transfers_ = Transfers::open(*host_, objects_, transfers).value();
  ProgramsOptions programs;
  programs.cache = cache_folder();
  programs_.reset(new Programs(*this, id_, programs));
  doors_.open(config.socket_name, config.together).value();
  if (!config.log_folder.empty()) {
    NodeLogs::Options logs;
    logs.node = config.name;
    logs.files = log_files_in(config.log_folder);
    logs.limits.total = config.log_bytes.count;
    logs_ = std::make_unique<NodeLogs>(observers_, std::move(logs));
    events_.keep_in(log_files_in(config.log_folder));
  }
  config_ = std::move(config);
  replica_host_.join();
  open_copies();
}

void Node::serve_network(bool network, bool transfers) {
  const Duration up = up_time();
  const Time now = steady_now();
  if (sleep_.slept(up, now)) network_->on_slept(now);
  if (network || network_->next_deadline() <= now) network_->poll(now);
  if (transfers || transfers_->next_deadline() <= now) transfers_->poll(now);
  programs_->poll(now);
  halt_actors();
  proxies_.release_answers();
  for (Fd& visitor : doors_.visitors(poll_set_)) {
    Fd life = os::life_of_peer(visitor.get());
    processes_.add(os::LocalSocket(std::move(visitor))).life = std::move(life);
  }
  if (!over_ && doors_.is_over(poll_set_)) end_with_cluster("the cluster was ended");
}

/// Ends the node, which cannot serve any more. Drivers and observers get Shutdown with the reason,
/// so every wait ends. Workers get none, since they are killed with their zygotes: with a Shutdown
/// it would be left to chance whether an actor's destructor still runs.
void Node::go_down(const std::string& why) {
  if (over_) return;
  over_ = true;
  over_why_ = why;
  events_.note({EventKind::node_ends, Severity::warning, options_.name + " ends: " + why});
  for (auto& [index, process] : processes_)
    if (process->kind != wire::ProcessKind::worker) processes_.send(*process, wire::Shutdown{why});
}

/// Ends the node in good order: somebody ends the cluster, here or at its head.
void Node::end_with_cluster(const std::string& why) {
  go_down(why);
  over_why_.clear();
}

/// Ends a node that drains, once nothing needs it or its time is over.
void Node::leave_if_drained(Time now) {
  if (!draining_.is_on()) return;
  const bool has_driver = std::any_of(processes_.begin(), processes_.end(), [](const auto& entry) {
    return entry.second->kind == wire::ProcessKind::driver && entry.second->introduced;
  });
  const bool is_empty = leases_.lease_count() == 0 && actors_.hosted() == 0 && !has_driver;
  if (draining_.is_over(is_empty, now)) end_with_cluster("the node was drained");
}

/// Stops the node's actors (SIGSTOP) while this node may have been declared dead, and lets them go
/// on (SIGCONT) when it may serve again. Other lives of these actors may run elsewhere, so these
/// must not serve callers of this node either. If control does not take the node back in time, they
/// end with it. The word on the doorbell says until when actors may answer: an actor stops itself
/// then if this process does not run (client/actor_lease_timer.hpp).
void Node::halt_actors() {
  const bool halt = !network_->may_serve(steady_now());
  const Duration until = halt ? Duration{} : sleep_.up_at(network_->serves_until());
  processes_.halt_actors(halt, Time(until));
}

// --- control

void Node::on_control(control::FromControl& message) {
  std::visit(
      Cases{
          [&](control::Registered& m) {
            events_.registered(m.control_epoch);
            actors_.registered(m.epoch, m.control_epoch, m.number, steady_now());
            cluster_.report_again();
            jobs_.registered(network_->epoch());
            replica_host_.names().registered();
          },
          [&](control::StartActorAt& m) { actors_.start(m, steady_now()); },
          [&](control::StopActorAt& m) { actors_.stop(m, steady_now()); },
          [&](control::ActorReply& m) { actors_.replied(m); },
          [&](control::ActorLocation& m) { actors_.located(m, steady_now()); },
          [&](control::JobReply& m) { on_job_reply(m); },
          [&](control::JobInfo& m) { on_job_info(m); },
          [&](control::JobEnded& m) {
            events_.job_ended(m);
            end_job(m.job, m.why);
          },
          [&](control::Notice& m) { events_.heard(m); },
          [&](control::ClusterEnds& m) { end_with_cluster(m.why); },
          [&](control::DrainNode& m) {
            leases_.set_draining(true, steady_now());
            draining_.begin(m.within, steady_now());
          },
          [&](control::ListReply& m) { inquiries_.on_reply(m.request, message); },
          [&](control::KvReply& m) { inquiries_.on_reply(m.request, message); },
          [&](control::NamedObject& m) { replica_host_.on_named_object(message, m, steady_now()); },
          [&](control::ObjectForgotten& m) { replica_host_.names().forgotten(m); }, [&](auto&) {}},
      message);
}

void Node::on_control_reset(const std::string& why) {
  actors_.control_lost();
  replica_host_.forget_name_questions();
  inquiries_.end({}, Error(Code::unavailable, why, Outcome::unknown));
}

/// Sends a NodeReport of what this node has free, if that has changed.
void Node::report(Time now) {
  if (network_->epoch() == 0 || !cluster_.is_report_due(now)) return;
  control::NodeReport report = report_of_self();
  if (cluster_.is_news(report, now)) sender_.say_to_control(std::move(report));
}

/// Sends NodePace: how long tasks ran here.
void Node::tell_pace(Time now) {
  if (network_->epoch() == 0) return;
  if (auto pace = cluster_.take_pace(now)) sender_.say_to_control(*std::move(pace));
}

/// Tells the network which nodes must answer: watched nodes, and those from which something is
/// awaited. The silence of such a node ends in a reset, whether or not control hears it. Then
/// updates the rows of nodes that went out of reach or came back.
void Node::keep_in_touch(Time now) {
  if (!cluster_.is_touch_due(now)) return;
  const std::set<NodeId> watched = cluster_.watched();
  for (const NodeId node : cluster_.others())
    network_->keep_in_touch(node, watched.count(node) != 0 || remote_.talks_to(node) ||
                                      references_.imports_from(owners_.index_of(node)));
  cluster_.out_of_reach(network_->out_of_reach(now, control::kMaxUnreachable), now);
}

void Node::on_nodes(const control::ClusterNodes& nodes) {
  cluster_.on_nodes(nodes, steady_now());
  events_.nodes(nodes.rows);
  replica_host_.replicas().nodes_changed();
  // The launcher lets drivers in from now on: they find all nodes that started together.
  doors_.tell_launcher(cluster_.rows().size(), door());
}

// --- other nodes

void Node::on_peer(NodeId from, wire::Decoded<wire::PeerMessage>& decoded) {
  const Time now = steady_now();
  wire::PeerMessage& message = decoded.message;
  if (const auto* frame = std::get_if<wire::PeerFrame>(&message))
    return proxies_.on_frame(from, *frame, decoded.payload);
  if (remote_.on_message(from, message)) {
    if (std::holds_alternative<wire::PeerCredit>(message)) proxies_.resume(from);
    return;
  }
  if (const auto* hold = std::get_if<wire::PeerHold>(&message))
    return references_.peer_hold(owners_.index_of(from), hold->object,
                                 owners_.index_of_owner(hold->holder), hold->delta);
  if (const auto* await = std::get_if<wire::PeerAwait>(&message))
    return wire::is_copy(await->object)
               ? replica_host_.replicas().on_await(from, await->object)
               : references_.await(await->object, owners_.index_of(from), false);
  if (const auto* rebuild = std::get_if<wire::PeerRebuild>(&message))
    return references_.rebuild(rebuild->object, owners_.index_of(from), rebuild->lost);
  if (const auto* ready = std::get_if<wire::PeerReady>(&message)) {
    if (!replica_host_.on_ready(from, *ready, decoded.payload))
      network_->drop(from, "it sent a value with too many refs");
    return;
  }
  if (replica_host_.on_message(from, message, now)) return;
  if (const auto* inquire = std::get_if<wire::PeerInquire>(&message))
    return observers_.on_peer_inquire(from, *inquire);
  if (const auto* answer = std::get_if<wire::PeerAnswer>(&message)) {
    if (!observers_.rows().node_answered(from, *answer, decoded.payload))
      inquiries_.on_answer(from, *answer, decoded.payload);
    return;
  }
  if (programs_->on_message(from, message, decoded.payload, now)) return;
  if (!extents_.restores_first(from, message, now))
    transfers_->on_message(from, message, decoded.payload, now);
}

void Node::on_peer_reset(NodeId node, const std::string& why) {
  node_gone(node, why, network_->is_dead(node));
}

void Node::on_node_dead(NodeId node, const std::string& why) {
  events_.node_dead(node, why);
  cluster_.node_dead(node, steady_now());
  node_gone(node, why, true);
}

/// Ends everything with a node that is dead (`for_ever`) or was lost for now. While Owners tells
/// the reference table of it, peer_await() and pull() look for copies.
void Node::node_gone(NodeId node, const std::string& why, bool for_ever) {
  const Time now = steady_now();
  ErrorInfo info;
  info.code = Code::unavailable;
  info.message = (for_ever ? "the node is dead: " : "the node is out of reach: ") + why;
  owners_.node_lost(node, info);
  // The dead node may have named an object since: the answers are stale.
  replica_host_.forget_name_questions();
  extents_.forget_pulls(node);
  replica_host_.places().node_died(node);
  transfers_->node_died(node, for_ever, now);
  observers_.node_died(node, Error(info.code, info.message, Outcome::unknown), now);
  programs_->node_died(node, now);
  remote_.node_died(node, for_ever ? why : os::describe_out_of_reach(why), for_ever);
  // Last: it may ask the node again, under its new index.
  replica_host_.replicas().node_died(node, now);
  if (!for_ever) actors_.out_of_reach(node);
}

void Node::on_silent(NodeId node, bool silent) {
  actors_.silent(node, silent);
}

void Node::on_can_send(NodeId node) {
  inquiries_.send_owed(node);
  proxies_.resume(node);
}

/// Tells control with Leaving that this node has ended its workers and goes, so that control need
/// not wait until the node counts as dead. Waits at most kLeaveWait for the delivery.
void Node::leave() {
  if (!sender_.hears_control()) return;
  sender_.say_to_control(control::Leaving{id_, network_->epoch()});
  const Time until = steady_now() + kLeaveWait;
  for (Time now = steady_now(); now < until; now = steady_now()) {
    network_->flush(now);
    if (network_->delivered(config_.control.node)) return;
    pollfd entry{network_->fd(), POLLIN, 0};
    wait_for({&entry, 1}, std::chrono::milliseconds(10));
    network_->poll(steady_now());
  }
}

void Node::exit_now(const std::string& why) {
  go_down(why);
}

}  // namespace troupe::agent
