/// Handles what arrives: descriptors over the socket, messages of the agent and of peers over
/// rings. All under the lock.
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/client/failed_tell.hpp"
#include "troupe/runtime/client/log_printer.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/wire/cases.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// How often a worker checks whether a caller waits for a wake-up that was put off.
constexpr Duration kWakeupCoalescer = 1ms;

using wire::Cases;

/// Returns whether a value in the message is a location in memory, which only processes of one
/// node share.
bool names_memory(const wire::CallMessage& message) {
  const auto bad = [](const wire::Value& value) {
    return value.kind == wire::Value::Kind::shared || value.kind == wire::Value::Kind::remote;
  };
  if (const auto* call = std::get_if<wire::Call>(&message))
    return std::any_of(call->arguments.begin(), call->arguments.end(), bad);
  const auto* reply = std::get_if<wire::Reply>(&message);
  return reply != nullptr && bad(reply->value);
}

}  // namespace

Time ClientEngine::drain(Time now) {
  drop_spent();
  peers_.wake_late();
  if (agent_.socket().has_queued() && !agent_.socket().flush())
    agent_gone("the node's agent closed the connection");
  if (agent_.take_readable() || now >= agent_.lack().next_look()) drain_socket();
  peers_.each_ready([&](std::uint32_t slot) { drain_slot(slot, now); });
  if (work_.has_refused() && work_.judge_refused()) io_loop_->notify();
  agent_.channel().flush();
  if (now >= next_tick_) {
    next_tick_ = tasks_.tick(now);
    if (now >= next_look_)
      next_look_ = actors_.let_go_of_unwanted(now) ? now + ActorCalls::kUnwantedLook : Time::max();
    next_tick_ = std::min(next_tick_, next_look_);
  }
  next_tick_ = std::min(next_tick_, agent_.lack().next_look());
  if (reports_) next_tick_ = std::min(next_tick_, step_reports(now));
  drop_spent();
  collect_released();
  // While more calls wait, a caller may have to be woken for a wake-up that was put off.
  if (work_.has_calls() && io_loop_->shares_cpu())
    return std::min(next_tick_, now + kWakeupCoalescer);
  return next_tick_;
}

void ClientEngine::drain_socket() {
  for (;;) {
    auto received = agent_.socket().receive(frame_);
    if (received.kind == os::Received::Kind::starved)
      return lacks_descriptors({frame_.data(), received.size}, steady_now());
    agent_.lack().over();
    if (received.kind == os::Received::Kind::empty) return;
    if (received.kind == os::Received::Kind::closed) {
      drain_agent(steady_now());  // its ring may say why
      agent_gone("the node's agent has died");
      return;
    }
    auto decoded = wire::decode_node(BlobView(frame_.data(), received.size));
    if (!decoded) {
      agent_gone("the node's agent sent a broken message: " + decoded.error().message());
      return;
    }
    std::visit(
        Cases{[&](wire::Channel& m) { on_channel(m, std::move(received.descriptors)); },
              [&](wire::GiveExtent& m) { on_extent(m, std::move(received.descriptors)); },
              [&](wire::GiveReader& m) { on_reader(m, std::move(received.descriptors)); },
              [&](auto&) { on_node_message(decoded->message, decoded->payload, steady_now()); }},
        decoded->message);
  }
}

void ClientEngine::drain_slot(std::uint32_t slot, Time now) {
  if (slot == wire::kSocketSlot) {
    drain_socket();
  } else if (slot == agent_.slot()) {
    drain_agent(now);
  } else if (Peer* peer = peers_.at(slot)) {
    drain_peer(*peer, now);
  }
}

void ClientEngine::drain_agent(Time now) {
  std::size_t size = 0;
  for (;;) {
    switch (agent_.channel().receive(frame_.data(), size)) {
      case ring::Pop::empty: agent_.channel().flush(); return;
      case ring::Pop::corrupt: agent_gone("the ring from the node's agent is damaged"); return;
      case ring::Pop::frame: break;
    }
    auto decoded = wire::decode_node(BlobView(frame_.data(), size));
    if (decoded)
      on_node_message(decoded->message, decoded->payload, now);
    else if (decoded.error().code() != Code::unavailable)  // unknown: a newer agent's, skipped
      agent_gone("the node's agent sent a broken message: " + decoded.error().message());
  }
}

void ClientEngine::drain_peer(Peer& peer, Time now) {
  if (peer.dead) return;
  if (peer.channel.waiting() > 0 && peer.channel.flush()) {
    tasks_.writable(peer.process, now);
    actors_.writable(peer.process);
  }
  std::size_t size = 0;
  for (;;) {
    switch (peer.channel.receive(frame_.data(), size)) {
      case ring::Pop::empty: return;
      case ring::Pop::corrupt:
        log_line("process %llu of this node sent damaged frames; it is ignored",
                 static_cast<unsigned long long>(peer.process.value));
        drop_peer(peer);
        return;
      case ring::Pop::frame: break;
    }
    peers_.heard(peer);
    if (take_plain(peer, BlobView(frame_.data(), size), now)) continue;
    auto decoded = wire::decode_call(BlobView(frame_.data(), size));
    if (!decoded) {
      log_line("process %llu of this node sent a bad message: %s",
               static_cast<unsigned long long>(peer.process.value), decoded.error().what());
      drop_peer(peer);
      return;
    }
    if (peer.remote && names_memory(decoded->message)) {
      log_line("a process of another node sent a place in its memory");
      drop_peer(peer);
      return;
    }
    on_call_message(peer, decoded->message, decoded->payload, now);
  }
}

bool ClientEngine::drain_watched(Time now) {
  if (!peers_.bell().only_watched()) return false;
  drain_slot(peers_.bell().watched_slot(), now);
  return true;
}

void ClientEngine::drop_peer(Peer& peer) {
  peers_.give_up(peer);
  ErrorInfo info;
  info.code = Code::worker_died;
  info.message = "the process answered with damaged messages";
  const Error error(info);
  tasks_.worker_died(peer.process, ~std::uint64_t{0}, error, false, steady_now());
  actors_.worker_died(peer.process, ~std::uint64_t{0}, error);
}

// --- the agent's messages

void ClientEngine::on_channel(const wire::Channel& message, std::vector<Fd> descriptors) {
  const auto opened = peers_.open(message, std::move(descriptors));
  // Processes wait for this channel, and would wait for ever: end this process.
  if (!opened) return agent_gone(opened.error().message());
  if (*opened == nullptr) return;
  const Time now = steady_now();
  drain_slot(message.my_slot, now);  // frames may have come before the slot was known
  for (const auto& pending : peers_.take_grants()) {
    grant(pending.grant, now);
    if (pending.reclaimed) reclaim(pending.grant.lease, now);
  }
  for (const auto& update : peers_.take_updates()) on_actor_update(update);
}

void ClientEngine::on_actor_update(const wire::ActorUpdate& update) {
  if (update.state == wire::ActorState::alive && update.worker != process_ &&
      peers_.of(update.worker) == nullptr) {
    peers_.wait(update);  // the channel is on its way over the socket
    return;
  }
  actors_.update(update);
}

void ClientEngine::grant(const wire::LeaseGranted& granted, Time now) {
  // No task wants it any more.
  if (!classes_.knows(granted.key)) return return_lease(granted.lease);
  if (peers_.of(granted.worker) == nullptr) {
    peers_.wait(granted);
    return;
  }
  tasks_.granted(granted.key, granted.lease, granted.worker, now);
  next_tick_ = std::min(next_tick_, now + 1ms);
}

/// Handles LeaseReclaim, also for a lease whose worker's channel is still on its way.
void ClientEngine::reclaim(LeaseId lease, Time now) {
  peers_.reclaim(lease);
  tasks_.reclaim(lease, now);
}

void ClientEngine::on_peer_died(const wire::PeerDied& message, Time now) {
  peers_.drop_waiting(message.peer);
  Peer* const known = peers_.any(message.peer);
  if (known == nullptr) {
    peers_.died_before(message.peer);  // its channel is still on its way and must be refused
    return tell_agent(wire::Arrived{message.peer, 0});
  }
  Peer& peer = *known;
  drain_peer(peer, now);  // replies that were published before the death count
  if (!peer.remote) tell_agent(wire::Arrived{message.peer, peer.channel.received()});
  const std::uint64_t started = message.started != wire::PeerDied::kUnknown
                                    ? message.started
                                    : peer.channel.peer_progress().started;
  ErrorInfo info;
  info.code = Code::worker_died;
  info.outcome = Outcome::unknown;
  const bool is_lost = os::is_out_of_reach(message.reason);
  info.message =
      (is_lost ? "the process that ran it is " : "the process that ran it died: ") + message.reason;
  if (os::is_out_of_memory(message.reason)) info.code = Code::out_of_memory;
  info.remote_stack = message.stack;
  info.last_lines = message.last_lines;
  if (!peer.remote) info.origin.node = node_name_;
  const bool hosts_actor = actors_.has_worker(message.peer);
  if (hosts_actor) {
    info.code = is_lost ? Code::actor_unavailable : Code::actor_died;
    info.message = is_lost
                       ? "the actor's node is " + message.reason + "; the call may have run"
                       : "the actor's process died in the middle of the call: " + message.reason;
  }
  const Error error(info);
  if (!peer.dead)
    tasks_.worker_died(message.peer, started, error, os::is_end_of_process(message.reason), now);
  if (!peer.dead) actors_.worker_died(message.peer, started, error);
  work_.drop_calls_of(message.peer);
  if (peer.remote) {  // from here on nothing is written to it
    // Return the counts for its node of refs in frames that never left this process.
    for (const Blob& frame : peer.channel.take_waiting())
      if (auto decoded = wire::decode_call(frame))
        wire::for_each_ref(decoded->message,
                           [&](ObjectId id) { tell_agent(wire::Hold{id, peer.holder, -1}); });
    tell_agent(wire::Arrived{message.peer, peer.channel.received()});
  }
  if (auto next = peers_.remove(peer)) on_channel(next->message, std::move(next->descriptors));
}

void ClientEngine::on_node_message(wire::NodeMessage& message, BlobView payload, Time now) {
  const auto answered = [this](auto& answer) {
    if (!questions_.answer(answer)) return false;
    io_loop_->notify();
    return true;
  };
  std::visit(
      Cases{[&](wire::PeerDied& m) { on_peer_died(m, now); },
            [&](wire::LeaseGranted& m) {
              if (m.lease != 0) return grant(m, now);
              if (Peer* caller = peers_.find(m.worker)) caller->refused = false;
              lease_.granted(m);
            },
            [&](wire::LeaseRefused& m) { tasks_.refused(m.key, Error(Code::infeasible, m.why)); },
            [&](wire::LeaseReclaim& m) {
              if (m.holder == 0) return reclaim(m.lease, now);
              leave_silent_holder(m);
            },
            [&](wire::Ready& m) { on_ready(m, payload); },
            [&](wire::StartActor& m) {
              work_.become({std::move(m), Blob(payload.begin(), payload.end())});
              io_loop_->notify();
            },
            [&](wire::ActorUpdate& m) { on_actor_update(m); },
            [&](wire::FoundActor& m) {
              if (!answered(m) && m.found) tell_agent(wire::Hold{m.lifetime, process_, -1});
            },
            [&](wire::NamedObject& m) {
              if (!answered(m) && m.object)  // found, and counted for us
                tell_agent(wire::Hold{m.object, process_, -1});
            },
            [&](wire::Located& m) { answered(m); },
            [&](wire::Explained& m) { answered(m); },
            [&](wire::AskRows& m) { ask_reports(m, payload); },
            [&](wire::Nodes& m) {
              if (!answered(m) && log_printer_ != nullptr) log_printer_->on_nodes(m);
            },
            [&](wire::Answer& m) {
              if (log_printer_ != nullptr) log_printer_->on_answer(m, payload);
            },
            [&](wire::ExtentSealed&) {},
            [&](wire::GiveExtent& m) { on_extent(m, {}); },
            [&](wire::GiveReader& m) { on_reader(m, {}); },
            [&](wire::Recycle& m) { store_.recycle(m); },
            [&](wire::Forget& m) { store_.forget(m); },
            [&](wire::Rebuild& m) { recovery_.on_rebuild(m); },
            [&](wire::Lineage& m) { recovery_.lineage().forget_away(m.object); },
            [&](wire::KeptCall& m) { recovery_.take_over(m, payload); },
            [&](wire::MadeBy& m) { recovery_.lineage().entrust(m.call, m.result, m.object); },
            [&](wire::MemoryPressure&) { release_memory(); },
            [&](wire::NowAt& m) { answered(m); },
            [&](wire::Replicated& m) { answered(m); },
            [&](wire::Shutdown& m) {
              if (kind_ == wire::ProcessKind::driver) {
                if (m.cancels)
                  agent_gone("the job was " + m.why, Code::cancelled);
                else
                  agent_gone("the node goes down: " + m.why);
              } else {
                work_.end();
                io_loop_->notify();
              }
            },
            [&](auto&) {}},  // messages that only agents receive
      message);
}

/// Handles Ready, which answers an Await or a Rebuild. The agent answers all Awaits that precede
/// a Rebuild first, and no Await is sent while a Rebuild is open; so the counter `awaits` tells
/// the two apart.
void ClientEngine::on_ready(const wire::Ready& message, BlobView payload) {
  const detail::ObjectHandle handle = values_.find_held(message.object);
  if (!handle) return values_.give_back(message.value);
  Entry& entry = entry_of(handle);
  const bool to_rebuild = entry.rebuilding && entry.awaits == 0;
  if (entry.awaits > 0) --entry.awaits;
  if (!entry.ready.load(std::memory_order_relaxed)) {
    // An answer to an Await has the lost value.
    if (entry.rebuilding && !to_rebuild) return values_.give_back(message.value);
    values_.settle(entry, message.value, payload, message.node);
  } else if (to_rebuild) {
    recovery_.rebuilt(entry, message.value, payload);
  } else {
    values_.arrive(entry, message.value, payload);
  }
}

void ClientEngine::agent_gone(const std::string& why, Code code) {
  if (!agent_.lose(Error(code, why))) return;
  work_.end();
  if (abandon_ != nullptr) abandon_(work_.is_serving());
  give_up_notices();
  // Every wait checks agent_.is_lost(). Results that are still pending end in an error when somebody
  // asks for them.
  if (!io_loop_) return;
  io_loop_->forget_socket();
  io_loop_->notify();
}

/// Returns the error of a wait that has no answer: why the agent is lost, that the session is over, or
/// else `why`.
Error ClientEngine::no_answer(const char* why) const {
  if (agent_.is_lost()) return agent_.why_lost();
  return Error(Code::unavailable, stopping_ ? "the session is over" : why);
}

// --- peers' messages

void ClientEngine::on_call_message(Peer& peer, wire::CallMessage& message, BlobView payload,
                                   Time now) {
  std::visit(Cases{[&](wire::Call& m) {
                     auto incoming = std::allocate_shared<Incoming>(FreeListAllocator<Incoming>());
                     incoming->from = peer.process;
                     incoming->call = std::move(m);
                     incoming->payload = payload;
                     take_call(peer, std::move(incoming));
                   },
                   [&](wire::Reply& m) { on_reply(peer.process, m, payload, now); },
                   [&](wire::HandBack& m) {
                     tasks_.handed_back(peer.process, m.first, m.count, now);
                     next_tick_ = std::min(next_tick_, now + 1ms);
                   },
                   [&](wire::Recall&) { work_.hand_back_unstarted(); }},
             message);
}

/// Returns whether a record that ended is light, as end() defines it.
template <class Ended>
static bool is_light(const Ended& ended) noexcept {
  return ended.light && is_alone(entry_of(ended.results.front()));
}

void ClientEngine::drop_spent() noexcept {
  spent_task_.reset();
  spent_call_.reset();
}

void ClientEngine::on_reply(ProcessIndex worker, const wire::Reply& reply, BlobView payload,
                            Time now) {
  std::span<const detail::ObjectHandle> results;
  // The agent must get the KeptCall of a call before the Fulfil of its result: this process may
  // end between the two messages.
  detail::ObjectHandle unsaid;
  Task* task = tasks_.in_flight(worker, reply.sequence);
  ActorCall* call = task == nullptr ? actors_.in_flight(worker, reply.sequence) : nullptr;
  if (task != nullptr) {
    if (reply.value.kind == wire::Value::Kind::error && tasks_.yields(worker, reply.sequence, now))
      return;
    if (reply.value.kind == wire::Value::Kind::error && task->request) {
      const auto& types = task->request->retry_on;
      if (std::find(types.begin(), types.end(), reply.value.error->type) != types.end() &&
          tasks_.retry(worker, reply.sequence, now))
        return;
    }
    results = task->results;
  } else if (call != nullptr) {
    results = call->results;
  } else {
    values_.discard(reply.value);
    return;  // a reply of a late attempt
  }
  if (reply.value.kind == wire::Value::Kind::error) {
    Error error(*reply.value.error);
    if (task != nullptr) error = with_its_name(error, *task);
    if (task != nullptr && task->fate == Task::Fate::open && reply.lost_argument != 0 &&
        error.code() == Code::object_lost && recovery_.recover_argument(*task, reply, error)) {
      const std::uint32_t waiting = watch_arguments(task->call, waiter_of(*task));
      tasks_.postponed(worker, reply.sequence, waiting, now);
      next_tick_ = std::min(next_tick_, now + 1ms);
      return;
    }
    if (task != nullptr) error = TaskManager::of_all_attempts(*task, error);
    if (task != nullptr && task->spec != nullptr) error = Recovery::cannot_run_again(*task, error);
    for (const auto& result : results) values_.settle_error(entry_of(result), error);
    if (results.empty() && call != nullptr) log_failed_tell(*call, error);
  } else if (reply.index < results.size() &&
             !entry_of(results[reply.index]).ready.load(std::memory_order_relaxed)) {
    Entry& result = entry_of(results[reply.index]);
    const bool may_be_kept = task != nullptr && reply.last &&
                             (reply.value.kind == wire::Value::Kind::shared ||
                              reply.value.kind == wire::Value::Kind::forwarded);
    if (may_be_kept && std::exchange(result.fulfil, false)) unsaid = results[reply.index];
    values_.settle(result, reply.value, payload);
  } else {
    values_.discard(reply.value);  // an earlier attempt gave this result already
  }
  if (call != nullptr && reply.value.kind != wire::Value::Kind::inline_bytes)
    for (const auto& result : results) entry_of(result).made = Entry::Made::actor;
  if (!reply.last) return;
  const bool light = task != nullptr ? task->spec == nullptr && is_light(*task) : is_light(*call);
  end(worker, task != nullptr, reply.sequence, Duration(reply.ran_ns), now, light);
  if (unsaid) values_.tell_fulfilled(entry_of(unsaid));
}

// --- the worker's side

std::optional<Time> ClientEngine::next_work(std::shared_ptr<Incoming>& call,
                                            std::optional<ActorStart>& actor,
                                            std::function<void()>& resume) {
  Guard lock = guard();
  work_.answered();
  // Calls that were accepted before Shutdown still run, and so do calls of the actor to itself.
  const auto has_work = [this] { return !agent_.is_lost() && !stopping_ && work_.has_any(); };
  // Results of tasks and calls of this process may be awaited elsewhere: it ends only after they
  // do.
  const auto over = [&] {
    return agent_.is_lost() ||
           (work_.is_ending() && !has_work() && tasks_.live() + actors_.live() == 0 &&
            !(loopback_.actor() && peers_.has_unanswered()));
  };
  bool go_on = has_work();
  if (!go_on && !work_.is_ending()) {
    wait_for_work(lock, [&] { return work_.is_ending() || has_work(); });
    go_on = has_work();
  }
  if (work_.is_ending()) [[unlikely]] {
    // They may need the very CPU that this worker holds.
    if (!work_.is_blocked() && !over()) work_.block();
    if (!has_work()) io_loop_->wait(lock, [&] { return over() || has_work(); }, Time::max());
    go_on = has_work();
  }
  if (go_on) {
    lease_.show_devices();
    work_.next(call, actor, resume);
    if (actor) {
      lease_timer_.begin(agent_.channel().peer_doorbell().said(), steady_now());
      loopback_.begin(actor->start.actor);
      actors_.lives_here(actor->start.actor, actor->start.incarnation, process_);
    } else if (call) {
      peers_.begin_call(call->from, call->call.sequence);
    }
  }
  const Time waited = io_loop_->waited_until();
  unlock_and_collect(lock);
  return go_on ? std::optional(waited) : std::nullopt;
}

bool ClientEngine::has_lost_agent() {
  Guard lock = guard();
  const bool lost = agent_.is_lost();
  unlock_and_collect(lock);
  return lost;
}

void ClientEngine::finish_sends() {
  Guard lock = guard();
  io_loop_->wait(
      lock, [this] { return agent_.is_lost() || tasks_.live() + actors_.live() == 0; },
      Time::max());
  unlock_and_collect(lock);
}

void ClientEngine::reply(ProcessIndex to, std::uint64_t sequence, std::uint32_t index, bool last,
                         Duration ran, const OutgoingValue& value) {
  Guard lock = guard();
  if (last) work_.answered();
  Peer* peer = peers_.of(to);
  if (peer != nullptr || to == process_) {
    payload_.clear();
    wire::Reply message;
    message.sequence = sequence;
    message.index = index;
    message.last = last;
    message.ran_ns = static_cast<std::uint64_t>(ran.count());
    message.value = values_.outgoing(
        value, peer != nullptr ? peer->receiver() : Receiver{.holder = process_}, payload_);
    message.lost_argument = value.lost.number;
    message.lost = value.lost.object;
    if (peer == nullptr) {
      const Blob bytes = payload_;  // payload_ changes when a waiter sends
      on_reply(process_, message, bytes, steady_now());
      return unlock_and_collect(lock);
    }
    settle_agent_queue();
    if (last) peer->channel.count_completed(++peer->completed);
    peer->channel.send(writer_.encode(wire::CallMessage(std::move(message))), payload_);
  } else if (value.kind == wire::Value::Kind::shared) {  // the caller is gone: no owner
    store_.drop(value.location);
  }
  unlock_and_collect(lock);
}

void ClientEngine::tell_pace(std::vector<wire::SitePace> sites) {
  Guard lock = guard();
  tell_agent(wire::Pace{std::move(sites)});
  unlock_and_collect(lock);
}

void ClientEngine::created(ActorId actor, std::uint64_t incarnation, const Error* error) {
  Guard lock = guard();
  wire::ActorCreated message{actor, incarnation, error != nullptr ? error->shared_info() : nullptr};
  tell_agent(message);
  unlock_and_collect(lock);
}

}  // namespace troupe::client
