#include "troupe/runtime/agent/processes.hpp"

#include "troupe/runtime/base/memory_file.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/wire/values.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>

namespace troupe::agent {
namespace {

/// A zygote tells at once of a worker that has ended, unless it is stopped or hangs.
constexpr Duration kZygoteTells = std::chrono::seconds(2);

}  // namespace

Processes::Processes(const Below& below)
    : below_(below), bell_(ring::Doorbell::create().value()), slots_(1) {}

// --- records

Process& Processes::add(os::LocalSocket socket) {
  auto process = std::make_unique<Process>();
  process->index = take_index();
  process->socket = std::move(socket);
  return *table_.emplace(process->index, std::move(process)).first->second;
}

std::optional<ProcessIndex> Processes::lasting_process(JobNumber job) const {
  std::optional<ProcessIndex> found;
  for (const auto& [index, process] : table_) {
    if (process->job_number != job || !process->introduced || process->ending) continue;
    if (process->halted || process->leaving || !process->bell) continue;
    if (process->kind == wire::ProcessKind::driver) return index;
    found = index;
  }
  return found;
}

std::uint32_t Processes::take_slot(Slot owner) {
  for (std::uint32_t slot = 1; slot < slots_.size(); ++slot)
    if (slots_[slot].process == 0) {
      slots_[slot] = owner;
      return slot;
    }
  slots_.push_back(owner);
  return static_cast<std::uint32_t>(slots_.size() - 1);
}

// --- sending

void Processes::send(Process& to, const wire::NodeMessage& message, BlobView payload) {
  if (to.ending || !to.introduced) return;
  const BlobView head = writer_.encode(message);
  const std::size_t most = to.bell ? ring::kMaxFrame : os::kMaxPacket;
  if (head.size() + payload.size() > most) [[unlikely]]  // made of what others have sent
    return break_off(to, "a message for it, " + std::string(agent::name_of(message)) +
                             ", is larger than its connection takes");
  if (to.bell) {
    if (!to.channel.send(head, payload)) break_off(to, "it does not read its ring");
    return;
  }
  Blob packet(head.begin(), head.end());  // an observer has no ring
  packet.insert(packet.end(), payload.begin(), payload.end());
  if (!to.socket.send(packet, {})) break_off(to, "its connection closed");
}

void Processes::send_with(Process& to, const wire::NodeMessage& message,
                          std::vector<int> descriptors) {
  if (to.ending) return;
  if (!to.socket.send(writer_.encode(message), descriptors))
    return break_off(to, "its connection closed");
  if (to.bell) to.bell->ring(wire::kSocketSlot);
}

void Processes::refuse(Process& to, const std::string& why) {
  (void)to.socket.send(writer_.encode(wire::NodeMessage(wire::Shutdown{why})), {});
  break_off(to, why);
}

// --- channels

void Processes::open_ring(Process& process, ring::Doorbell bell, ring::ChannelMemory memory,
                          wire::Welcome welcome) {
  process.bell = std::make_shared<ring::Doorbell>(std::move(bell));
  process.slot = take_slot({process.index, 0});
  process.introduced = true;
  welcome.process = process.index;
  welcome.my_slot = 1;
  welcome.agent_slot = process.slot;
  send_with(process, welcome, {memory.fd(), bell_.memory_fd(), bell_.event_fd()});
  process.channel = ring::Channel(std::move(memory), 0, process.bell, welcome.my_slot);
  process.channel.close_fd();
}

void Processes::connect(Process& a, Process& b) {
  if (a.peers.count(b.index) != 0) return;
  const std::uint32_t slot_a = a.peers[b.index] = a.slots.take();
  const std::uint32_t slot_b = b.peers[a.index] = b.slots.take();
  auto memory = ring::ChannelMemory::create();
  if (!memory) return break_off(b, memory.error().message());
  send_with(a, wire::Channel{b.index, 0, slot_a, slot_b},
            {memory->fd(), b.bell->memory_fd(), b.bell->event_fd()});
  send_with(b, wire::Channel{a.index, 1, slot_b, slot_a},
            {memory->fd(), a.bell->memory_fd(), a.bell->event_fd()});
}

std::optional<Proxies::Opened> Processes::open_channel(ProcessIndex index,
                                                       ProcessIndex proxy_process,
                                                       ProcessIndex holder) {
  Process* process = find(index);
  if (process == nullptr) return std::nullopt;
  auto memory = ring::ChannelMemory::create();
  if (!memory) {
    break_off(*process, memory.error().message());
    return std::nullopt;
  }
  Proxies::Opened ends;
  ends.slot = take_slot({index, proxy_process});
  wire::Channel channel;
  channel.peer = proxy_process;
  channel.side = 1;
  channel.my_slot = ends.its_slot = process->slots.take();
  channel.peer_slot = ends.slot;
  channel.remote = true;
  channel.holder = holder;
  send_with(*process, channel, {memory->fd(), bell_.memory_fd(), bell_.event_fd()});
  ends.channel = ring::Channel(std::move(*memory), 0, process->bell, channel.my_slot);
  ends.channel.close_fd();
  return ends;
}

void Processes::close_channel(ProcessIndex process, std::uint32_t slot, std::uint32_t its_slot) {
  if (Process* living = find(process)) living->slots.give_back(its_slot);
  slots_[slot] = {};
}

// --- ends

void Processes::break_off(Process& process, const std::string& why) {
  if (process.ending || process.last_read) return;
  if (process.kind == wire::ProcessKind::worker && process.pid > 0)
    os::send_signal(process.pid, SIGKILL);
  process.reason = why;
  process.ending = true;
  process.doubted_at = steady_now() + kZygoteTells;
}

void Processes::kill(Process& worker) {
  worker.killed = true;
  if (worker.pid > 0) os::send_signal(worker.pid, SIGKILL);
}

void Processes::halt_actors(bool halt, Time lease) {
  bell_.say(wire::actor_lease_word(lease));
  if (!halt && !halts_actors_) return;
  halts_actors_ = halt;
  for (const auto& [index, process] : table_) {
    if (process->pid <= 0 || process->halted == halt) continue;
    if (halt && !below_.actors.hosts(index)) continue;
    process->halted = halt;
    os::send_signal(process->pid, halt ? SIGSTOP : SIGCONT);
  }
}

bool Processes::has_unread() const {
  return std::any_of(table_.begin(), table_.end(),
                     [](const auto& entry) { return entry.second->ending; });
}

std::vector<ProcessIndex> Processes::ending() const {
  std::vector<ProcessIndex> all;
  for (const auto& [index, process] : table_)
    if (process->ending) all.push_back(index);
  return all;
}

bool Processes::look_for_death(Process& worker, Time now) const {
  if (now < worker.doubted_at) return false;
  worker.doubted_at = now + kZygoteTells;
  const Fd life = os::handle_of(worker.pid);
  return life && is_ready(life.get());
}

Time Processes::next_deadline() const {
  Time until = Time::max();
  for (const auto& [index, process] : table_)
    if (process->ending && process->pid > 0) until = std::min(until, process->doubted_at);
  return until;
}

void Processes::read_to_the_end(Process& process) {
  process.last_read = true;
  process.ending = false;  // read_ring() reads nothing of an ending process
  if (process.introduced && process.bell) (void)read_ring(process);
  below_.proxies.drain_to_the_end(process.index);
  process.ending = true;
  below_.proxies.finish_ending(process.index);
}

std::set<ProcessIndex> Processes::tell_peers(Process& ending) {
  std::set<ProcessIndex> peers;
  for (const auto& [peer, slot] : ending.peers) {
    peers.insert(peer);
    Process* const other = record(peer);
    if (other == nullptr || peer == ending.index) continue;
    send(*other, wire::PeerDied{ending.index, ending.reason, wire::PeerDied::kUnknown, ending.stack,
                                ending.last_lines});
    other->slots.give_back(
        other->peers.extract(ending.index).mapped());  // also if `other` is ending
  }
  return peers;
}

void Processes::remove(ProcessIndex index) {
  const auto at = table_.find(index);
  if (at->second->slot != 0) slots_[at->second->slot] = {};
  table_.erase(at);
}

// --- the loop

bool Processes::read_rings() {
  // Until nothing is ready: ReferenceTable::settle() relies on all that was published before having
  // been read. The bounds keep writers that never pause from starving the rest of the loop. At a
  // bound, all that was published before the first look has been read.
  constexpr int kMostLooks = 1000, kMostCut = 8;
  int looks = 0, cut = 0;
  for (; looks < kMostLooks && cut < kMostCut && bell_.take(ready_slots_); ++looks) {
    for (const std::uint32_t slot : ready_slots_)
      each_slot_of_mark(slot, slots_.size(),
                        [&](std::uint32_t at) { cut += read_slot(at) ? 0 : 1; });
  }
  return looks < kMostLooks && cut < kMostCut;
}

/// Returns false if the slot's ring may have more.
bool Processes::read_slot(std::uint32_t slot) {
  const Slot whose = slots_[slot];
  if (whose.process == 0) return true;
  if (whose.proxy_process != 0) {
    below_.proxies.drain({whose.process, whose.proxy_process});
  } else if (Process* process = find(whose.process)) {
    return read_ring(*process);
  }
  return true;
}

/// Reads the ring until it is empty, or as many bytes have been read as it holds. In the second
/// case its slot stays ready, and the result is false.
bool Processes::read_ring(Process& process) {
  std::size_t size = 0, sum = 0;
  std::vector<Fd> none;
  process.channel.flush();
  while (!process.ending) {
    if (sum >= ring::kRingBytes) {
      bell_.ring(process.slot);
      return false;
    }
    const ring::Pop pop = process.channel.receive(frame_.data(), size);
    if (pop == ring::Pop::empty) break;
    if (pop == ring::Pop::corrupt) {
      break_off(process, "its ring is damaged");
      break;
    }
    auto decoded = wire::decode_node(BlobView(frame_.data(), size));
    if (!decoded) {
      break_off(process, "it sent a bad message: " + decoded.error().message());
      break;
    }
    sum += size;
    handle(process, decoded->message, decoded->payload, none);
  }
  return true;
}

bool Processes::read_socket(Process& process) {
  constexpr int kMostPackets = 1024;
  const auto end = [&](const std::string& why) {
    break_off(process, why);
    return true;
  };
  if (!process.socket.flush()) return end("its connection closed");
  for (int packets = 0; !process.ending; ++packets) {
    if (packets == kMostPackets) return false;
    os::Received received = process.socket.receive(packet_);
    if (received.kind == os::Received::Kind::empty) break;
    if (received.kind == os::Received::Kind::closed) {
      process.hung_up = true;
      return end("its connection closed");
    }
    if (received.kind == os::Received::Kind::starved)
      return end(std::string("the node's agent has as many open files as it may: ") +
                 memory_remedy(EMFILE));
    auto decoded = wire::decode_node(BlobView(packet_.data(), received.size));
    if (!decoded) return end("it sent a bad message: " + decoded.error().message());
    handle(process, decoded->message, decoded->payload, received.descriptors);
  }
  return true;
}

void Processes::wait_for(PollSet& set) {
  first_life_ = set.size();
  for (const auto& [index, process] : table_)
    if (process->life && !process->ending) set.add(process->life.get(), index.value);
  first_socket_ = set.size();
  for (const auto& [index, process] : table_)
    if (!process->ending)  // its socket is not read any more; if closed it would always be ready
      set.add(process->socket.fd(), index.value, process->socket.events());
}

void Processes::serve(const PollSet& set) {
  std::set<ProcessIndex> unread;
  for (std::size_t i = first_socket_; i < set.size(); ++i)
    if (set.ready(i))
      if (Process* process = find(ProcessIndex::of(set.whose(i)));
          process && !read_socket(*process))
        unread.insert(process->index);
  for (std::size_t i = first_life_; i < first_socket_; ++i)  // after the last messages were read
    if (set.ready(i))
      if (Process* process = find(ProcessIndex::of(set.whose(i)));
          process && unread.count(process->index) == 0)
        break_off(*process, "its process ended");
}

}  // namespace troupe::agent
