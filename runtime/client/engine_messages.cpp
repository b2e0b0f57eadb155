/// Handles what arrives: descriptors over the socket, messages of the agent and of peers over
/// rings. All under the lock.
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/client/engine.hpp"
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
  calls_.drop_spent();
  peers_.wake_late();
  if (agent_.socket().has_queued() && !agent_.is_lost() && !agent_.socket().flush())
    agent_gone("the node's agent closed the connection");
  if (agent_.take_readable() || now >= agent_.lack().next_look()) drain_socket();
  peers_.each_ready([&](std::uint32_t slot) { drain_slot(slot, now); });
  if (callers_.work().has_refused() && callers_.work().judge_refused()) io_loop_->notify();
  agent_.channel().flush();
  calls_.tick(now);
  calls_.wake_by(agent_.lack().next_look());
  calls_.wake_by(reports_.step(now));
  calls_.drop_spent();
  gate_.collect();
  // While more calls wait, a caller may have to be woken for a wake-up that was put off.
  if (callers_.work().has_calls() && io_loop_->shares_cpu())
    return std::min(calls_.next_tick(), now + kWakeupCoalescer);
  return calls_.next_tick();
}

void ClientEngine::drain_socket() {
  while (!agent_.is_lost()) {
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
        Cases{
            [&](wire::Channel& m) { on_channel(m, std::move(received.descriptors)); },
            [&](wire::GiveExtent& m) { store_asks_.on_extent(m, std::move(received.descriptors)); },
            [&](wire::GiveReader& m) { store_asks_.on_reader(m, std::move(received.descriptors)); },
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
  while (!agent_.is_lost()) {
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
  if (peer.channel.waiting() > 0 && peer.channel.flush()) calls_.writable(peer.process, now);
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
    const BlobView frame(frame_.data(), size);
    if (calls_.take_plain(peer, frame, now) || callers_.take_plain(peer, frame)) continue;
    auto decoded = wire::decode_call(frame);
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
  calls_.worker_died(peer.process, ~std::uint64_t{0}, error, false, steady_now());
}

// --- the agent's messages

void ClientEngine::on_channel(const wire::Channel& message, std::vector<Fd> descriptors) {
  const auto opened = peers_.open(message, std::move(descriptors));
  // Processes wait for this channel, and would wait for ever: end this process.
  if (!opened) return agent_gone(opened.error().message());
  if (*opened == nullptr) return;
  const Time now = steady_now();
  drain_slot(message.my_slot, now);  // frames may have come before the slot was known
  calls_.go_on(now);
}

void ClientEngine::on_peer_died(const wire::PeerDied& message, Time now) {
  peers_.drop_waiting(message.peer);
  Peer* const known = peers_.any(message.peer);
  if (known == nullptr) {
    peers_.died_before(message.peer);  // its channel is still on its way and must be refused
    return tell(wire::Arrived{message.peer, 0});
  }
  Peer& peer = *known;
  drain_peer(peer, now);  // replies that were published before the death count
  if (!peer.remote) tell(wire::Arrived{message.peer, peer.channel.received()});
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
  if (!peer.remote) info.origin.node = self_.node_name;
  const bool hosts_actor = calls_.actors().has_worker(message.peer);
  if (hosts_actor) {
    info.code = is_lost ? Code::actor_unavailable : Code::actor_died;
    info.message = is_lost
                       ? "the actor's node is " + message.reason + "; the call may have run"
                       : "the actor's process died in the middle of the call: " + message.reason;
  }
  const Error error(info);
  if (!peer.dead)
    calls_.worker_died(message.peer, started, error, os::is_end_of_process(message.reason), now);
  callers_.work().drop_calls_of(message.peer);
  if (peer.remote) {  // from here on nothing is written to it
    // Return the counts for its node of refs in frames that never left this process.
    for (const Blob& frame : peer.channel.take_waiting())
      if (auto decoded = wire::decode_call(frame))
        wire::for_each_ref(decoded->message,
                           [&](ObjectId id) { tell(wire::Hold{id, peer.holder, -1}); });
    tell(wire::Arrived{message.peer, peer.channel.received()});
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
              if (m.lease != 0) return calls_.grant(m, now);
              if (Peer* caller = peers_.find(m.worker)) caller->refused = false;
              lease_.granted(m);
            },
            [&](wire::LeaseRefused& m) {
              calls_.tasks().refused(m.key, Error(Code::infeasible, m.why));
            },
            [&](wire::LeaseReclaim& m) {
              if (m.holder == 0) return calls_.reclaim(m.lease, now);
              callers_.leave_silent_holder(m);
            },
            [&](wire::Ready& m) { recovery_.on_ready(m, payload); },
            [&](wire::StartActor& m) {
              callers_.work().become({std::move(m), Blob(payload.begin(), payload.end())});
              io_loop_->notify();
            },
            [&](wire::ActorUpdate& m) { calls_.update(m); },
            [&](wire::FoundActor& m) {
              if (!answered(m) && m.found) tell(wire::Hold{m.lifetime, self_.process, -1});
            },
            [&](wire::NamedObject& m) {
              if (!answered(m) && m.object)  // found, and counted for us
                tell(wire::Hold{m.object, self_.process, -1});
            },
            [&](wire::Located& m) { answered(m); },
            [&](wire::Explained& m) { answered(m); },
            [&](wire::AskRows& m) { reports_.ask(m, payload); },
            [&](wire::Nodes& m) {
              if (!answered(m) && log_printer_ != nullptr) log_printer_->on_nodes(m);
            },
            [&](wire::Answer& m) {
              if (log_printer_ != nullptr) log_printer_->on_answer(m, payload);
            },
            [&](wire::ExtentSealed&) {},
            [&](wire::GiveExtent& m) { store_asks_.on_extent(m, {}); },
            [&](wire::GiveReader& m) { store_asks_.on_reader(m, {}); },
            [&](wire::Recycle& m) { store_.recycle(m); },
            [&](wire::Forget& m) { store_.forget(m); },
            [&](wire::Rebuild& m) { recovery_.on_rebuild(m); },
            [&](wire::Lineage& m) { recovery_.lineage().forget_away(m.object); },
            [&](wire::KeptCall& m) { recovery_.take_over(m, payload); },
            [&](wire::MadeBy& m) { recovery_.lineage().entrust(m.call, m.result, m.object); },
            [&](wire::MemoryPressure&) { store_asks_.release_memory(); },
            [&](wire::NowAt& m) { answered(m); },
            [&](wire::Replicated& m) { answered(m); },
            [&](wire::Shutdown& m) {
              if (self_.kind == wire::ProcessKind::driver) {
                if (m.cancels)
                  agent_gone("the job was " + m.why, Code::cancelled);
                else
                  agent_gone("the node goes down: " + m.why);
              } else {
                callers_.work().end();
                io_loop_->notify();
              }
            },
            [&](auto&) {}},  // messages that only agents receive
      message);
}

void ClientEngine::agent_gone(const std::string& why, Code code) {
  if (!agent_.lose(Error(code, why))) return;
  callers_.work().end();
  if (abandon_ != nullptr) abandon_(callers_.work().is_serving());
  if (log_printer_ != nullptr && !waits_.is_over()) log_printer_->on_loss();
  resumes_.give_up_notices();
  // Every wait checks agent_.is_lost(). Results that are still pending end in an error when somebody
  // asks for them.
  if (!io_loop_) return;
  io_loop_->forget_socket();
  io_loop_->notify();
}

// --- peers' messages

void ClientEngine::on_call_message(Peer& peer, wire::CallMessage& message, BlobView payload,
                                   Time now) {
  std::visit(Cases{[&](wire::Call& m) { callers_.take(peer, std::move(m), payload); },
                   [&](wire::Reply& m) { calls_.take_reply(peer.process, m, payload, now); },
                   [&](wire::HandBack& m) { calls_.hand_back(peer.process, m, now); },
                   [&](wire::Recall&) { callers_.work().hand_back_unstarted(); }},
             message);
}

// --- the worker's side

std::optional<Time> ClientEngine::next_work(std::shared_ptr<Incoming>& call,
                                            std::optional<ActorStart>& actor,
                                            std::function<void()>& resume) {
  Guard lock = gate_.guard();
  callers_.work().answered();
  // Calls that were accepted before Shutdown still run, and so do calls of the actor to itself.
  const auto has_work = [this] {
    return !agent_.is_lost() && !waits_.is_over() && callers_.work().has_any();
  };
  // Results of tasks and calls of this process may be awaited elsewhere: it ends only after they
  // do.
  const auto over = [&] {
    return agent_.is_lost() || (callers_.work().is_ending() && !has_work() && calls_.live() == 0 &&
                                !(calls_.sender().loopback().actor() && peers_.has_unanswered()));
  };
  bool go_on = has_work();
  if (!go_on && !callers_.work().is_ending()) {
    waits_.wait_for_work(lock, [&] { return callers_.work().is_ending() || has_work(); });
    go_on = has_work();
  }
  if (callers_.work().is_ending()) [[unlikely]] {
    // They may need the very CPU that this worker holds.
    if (!callers_.work().is_blocked() && !over()) callers_.work().block();
    if (!has_work()) io_loop_->wait(lock, [&] { return over() || has_work(); }, Time::max());
    go_on = has_work();
  }
  if (go_on) {
    lease_.show_devices();
    callers_.work().next(call, actor, resume);
    if (actor) {
      lease_.actor_timer().begin(agent_.channel().peer_doorbell().said(), steady_now());
      calls_.sender().loopback().begin(actor->start.actor);
      calls_.actors().lives_here(actor->start.actor, actor->start.incarnation, self_.process);
    } else if (call) {
      peers_.begin_call(call->from, call->call.sequence);
    }
  }
  const Time waited = io_loop_->waited_until();
  gate_.unlock_and_collect(lock);
  return go_on ? std::optional(waited) : std::nullopt;
}

bool ClientEngine::has_lost_agent() {
  Guard lock = gate_.guard();
  const bool lost = agent_.is_lost();
  gate_.unlock_and_collect(lock);
  return lost;
}

void ClientEngine::finish_sends() {
  Guard lock = gate_.guard();
  io_loop_->wait(lock, [this] { return agent_.is_lost() || calls_.live() == 0; }, Time::max());
  settle_agent_queue();  // what the last results have told
  gate_.unlock_and_collect(lock);
}

void ClientEngine::reply_plain(ProcessIndex to, const wire::PlainReply& reply, BlobView value) {
  Guard lock = gate_.guard();
  callers_.reply_plain(to, reply, value);
  gate_.unlock_and_collect(lock);
}

void ClientEngine::reply(ProcessIndex to, std::uint64_t sequence, std::uint32_t index, bool last,
                         Duration ran, const OutgoingValue& value) {
  Guard lock = gate_.guard();
  callers_.reply(to, sequence, index, last, ran, value);
  gate_.unlock_and_collect(lock);
}

void ClientEngine::ended_here(Task& task, std::span<OutgoingValue> values) noexcept {
  Guard lock = gate_.guard();
  calls_.ended_here(task, values);
  gate_.unlock_and_collect(lock);
}

void ClientEngine::runs_in_place(InPlaceRunner* runner) {
  Guard lock = gate_.guard();
  waits_.runs_in_place(runner);
  gate_.unlock_and_collect(lock);
}

void ClientEngine::tell_pace(std::vector<wire::SitePace> sites) {
  Guard lock = gate_.guard();
  tell(wire::Pace{std::move(sites)});
  gate_.unlock_and_collect(lock);
}

void ClientEngine::created(ActorId actor, std::uint64_t incarnation, const Error* error) {
  Guard lock = gate_.guard();
  wire::ActorCreated message{actor, incarnation, error != nullptr ? error->shared_info() : nullptr};
  tell(message);
  gate_.unlock_and_collect(lock);
}

}  // namespace troupe::client
