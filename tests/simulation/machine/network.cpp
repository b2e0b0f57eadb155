#include "tests/simulation/machine/network.hpp"

#include "troupe/runtime/client/actor_lease_timer.hpp"
#include "troupe/runtime/control/internal/disk_thread.hpp"
#include "troupe/runtime/control/internal/prober.hpp"

#include <sys/eventfd.h>
#include <algorithm>
#include <string_view>

namespace troupe::sim::machine {

using namespace std::chrono_literals;

/// Packets wait here until the Transport of the machine polls. One of the kind `none` says that the
/// connections of its sender have closed.
class Network::MachineWire final : public cluster::Wire {
 public:
  MachineWire(Network& network, std::size_t machine)
      : network_(network), machine_(machine), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    self = id_of(machine);
  }
  void transmit(Packet packet) override { network_.send(machine_, std::move(packet)); }
  int fd() const noexcept override { return event_.get(); }
  void arrive(Time now) override {
    eventfd_t count = 0;
    eventfd_read(event_.get(), &count);
    for (const Packet& packet : std::exchange(arrived_, {})) {
      if (packet.kind == Packet::Kind::none)
        port->on_closed(packet.from.low, now);
      else
        port->on_packet(packet, now);
    }
  }
  void put(Packet packet) {
    arrived_.push_back(std::move(packet));
    eventfd_write(event_.get(), 1);
  }

 private:
  Network& network_;
  const std::size_t machine_;
  const Fd event_;
  std::vector<Packet> arrived_;
};

Network::Network(Baton& baton, std::uint64_t seed, std::size_t nodes)
    : baton_(baton), random_(seed ^ 0x6e6574ULL), ended_(nodes + 1) {
  for (std::size_t i = 0; i <= nodes; ++i)
    wires_.push_back(std::make_unique<MachineWire>(*this, i));
  baton.when_ended([this](const Process& process) { process_ended(process); });
  current_ = this;
}
Network::~Network() = default;

cluster::Wire& Network::wire(std::size_t machine) {
  return *wires_[machine];
}

Time Network::arrival(std::size_t from, std::size_t to) {
  Time& last = last_[{from, to}];
  return last = std::max(last + 1ns, baton_.now() + delay());
}

void Network::send(std::size_t from, Packet packet) {
  const std::size_t to = packet.to.low;
  baton_.at(arrival(from, to), [this, to, packet = std::move(packet)] { deliver(to, packet); });
}

void Network::deliver(std::size_t to, Packet packet) {
  if (!ended_[to] && wires_[to]->port != nullptr) return wires_[to]->put(std::move(packet));
  if (packet.kind != Packet::Kind::knock) return;
  Packet answer;
  answer.kind = Packet::Kind::refuse;
  answer.from = packet.to;
  answer.to = packet.from;
  send(to, std::move(answer));
}

void Network::process_ended(const Process& process) {
  for (const auto& each : streams_)
    if (const auto stream = each.lock(); stream && !stream->over)
      if (stream->sender == &process || stream->receiver == &process)
        end_stream(stream, "its process has ended");
  if (process.name != std::string_view("agent") && process.name != std::string_view("control"))
    return;
  ended_[process.node] = true;
  for (std::size_t other = 0; other < wires_.size(); ++other) {
    Packet closed;
    closed.from = id_of(process.node);
    closed.to = id_of(other);
    if (other != process.node) send(process.node, std::move(closed));
  }
}

std::shared_ptr<Stream> Network::open_stream() {
  std::erase_if(streams_, [](const auto& each) { return each.expired(); });
  auto stream = std::make_shared<Stream>();
  stream->sender = Baton::self()->process;
  streams_.push_back(stream);
  return stream;
}

void Network::end_stream(const std::shared_ptr<Stream>& stream, const std::string& why) {
  baton_.at(baton_.now() + delay(), [stream, why] {
    if (std::exchange(stream->over, true)) return;
    const Error error(Code::unavailable, "the bulk connection has ended: " + why);
    if (stream->sender_ended && !stream->sender->ended) stream->sender_ended(error);
    if (stream->receiver_ended && !stream->receiver->ended) stream->receiver_ended(error);
  });
}

}  // namespace troupe::sim::machine

// The linker takes these functions in place of the library's.

namespace troupe::control::internal {

using sim::machine::Baton;

DiskThread::DiskThread(Store& store)
    : store_(store), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
DiskThread::~DiskThread() = default;

void DiskThread::start(const std::vector<Batch>& group) {
  group_ = &group;
  done_ = false;
  result_ = store_.commit(group, Need::essential);
  Baton::current()->at(Baton::current()->now() + std::chrono::microseconds(200), [this] {
    done_ = true;
    eventfd_write(event_.get(), 1);
  });
}
bool DiskThread::is_busy() const {
  return group_ != nullptr;
}
std::optional<Result<void>> DiskThread::finish() {
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
  if (group_ == nullptr || !done_) return std::nullopt;
  group_ = nullptr;
  return result_;
}

void Prober::start(const Probe& probe, Time now) {
  Running& running = running_[probe.node];
  running.epoch = probe.epoch;
  running.until = now + timeout_;
  running.ended = true;
  running.gone = sim::machine::Network::current()->has_ended(probe.node);
}
void Prober::add_to(std::vector<pollfd>&) const {}
Time Prober::next_deadline() const {
  return running_.empty() ? Time::max() : Time{};
}
void Prober::poll(Time, std::vector<ProbeAnswer>& answers) {
  for (const auto& [node, running] : running_)
    answers.push_back({node, running.epoch, running.gone});
  running_.clear();
}

}  // namespace troupe::control::internal

namespace troupe::client {

// No agent stands still here, so no actor needs to notice it.
void ActorLeaseTimer::begin(const std::atomic<std::int64_t>&, Time) {}
ActorLeaseTimer::~ActorLeaseTimer() {
  next_look_ = Time::max();
}
Time ActorLeaseTimer::look(Time) noexcept {
  return Time::max();
}

}  // namespace troupe::client
