/// Bulk connections between simulated machines: the ends that the product's threads and sockets
/// have. Pieces arrive after a delay, as events of the baton. bulk_queues.cpp runs as it is.
#include "tests/simulation/machine/network.hpp"
#include "troupe/runtime/agent/bulk_threads.hpp"

#include <sys/eventfd.h>
#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe {
namespace {

using sim::machine::Baton;
using sim::machine::Network;
using sim::machine::Process;
using sim::machine::Stream;

struct Door {
  const net::BulkDoor* door = nullptr;
  const Process* process = nullptr;
  std::vector<std::pair<net::BulkId, std::shared_ptr<Stream>>> knocks;
};
std::map<std::uint16_t, Door> doors;                       // by port, which is the node's number
std::map<int, std::shared_ptr<Stream>> accepted;           // by the descriptor of an Arrived
std::map<const void*, std::shared_ptr<Stream>> stream_of;  // by BulkIn and BulkOut

Time soon() {
  return Baton::current()->now() + Network::current()->delay();
}

}  // namespace

namespace net {

BulkDoor::BulkDoor(Fd listener, Fd epoll, std::uint16_t port)
    : listener_(std::move(listener)), epoll_(std::move(epoll)), port_(port) {}
BulkDoor::~BulkDoor() {
  doors.erase(port_);
}

Result<std::unique_ptr<BulkDoor>> BulkDoor::open(const std::string&, std::uint16_t) {
  const Process* process = Baton::self()->process;
  const auto port = static_cast<std::uint16_t>(process->node);
  std::unique_ptr<BulkDoor> opened(
      new BulkDoor(Fd(), Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), port));
  doors[port] = {opened.get(), process, {}};
  return opened;
}

std::vector<BulkDoor::Arrived> BulkDoor::poll(Time now) {
  eventfd_t count = 0;
  eventfd_read(epoll_.get(), &count);
  std::vector<Arrived> arrived;
  for (auto& [id, stream] : std::exchange(doors.at(port_).knocks, {})) {
    const auto known = expected_.find(id);
    if (known == expected_.end() || known->second <= now) {
      Network::current()->end_stream(stream, "the door does not expect it");
      continue;
    }
    expected_.erase(known);
    Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    accepted[fd.get()] = stream;
    arrived.push_back({id, std::move(fd), now + kBulkFirstFrame});
  }
  for (auto at = expected_.begin(); at != expected_.end();)
    at = at->second <= now ? expected_.erase(at) : std::next(at);
  return arrived;
}

Time BulkDoor::next_deadline() const noexcept {
  return Time::max();
}

Result<Fd> bulk_connect(const std::string&, std::uint16_t, BulkId, Time) {
  return Error(Code::unavailable, "a simulated machine has no sockets");
}

}  // namespace net

namespace agent {

BulkIn::BulkIn(ConnectionId connection, net::BulkKey key, Mailbox& mailbox)
    : connection_(connection), key_(std::move(key)), mailbox_(mailbox) {}

BulkIn::~BulkIn() {
  close();
  if (const auto mine = stream_of.extract(this); !mine.empty()) {
    mine.mapped()->take = {};
    mine.mapped()->receiver_ended = {};
  }
  if (thread_.joinable()) thread_.join();
}

void BulkIn::start(Fd fd, Time) {
  thread_ = SignalMaskedThread("troupe-bulk-in", [] {});  // it has started
  const auto stream = accepted.extract(fd.get()).mapped();
  stream_of[this] = stream;
  stream->receiver = Baton::self()->process;
  stream->take = [this](const net::BulkHeader& header, BlobView bytes) -> Result<void> {
    const Result<std::span<std::byte>> into = place_for(header);
    if (!into) return into.error();
    heard_.store(steady_now().time_since_epoch().count(), std::memory_order_relaxed);
    if (into->empty()) return {};
    std::memcpy(into->data(), bytes.data(), bytes.size());
    took(header);
    return {};
  };
  stream->receiver_ended = [this](const Error& error) {
    mailbox_.post({.kind = BulkEvent::Kind::in_ended,
                   .connection = connection_,
                   .item = 0,
                   .error = error,
                   .forged = false,
                   .part = {}});
  };
  if (stream->over) return stream->receiver_ended(Error(Code::unavailable, "the sender is gone"));
  if (stream->pump) stream->pump();
}

void BulkIn::close() noexcept {
  if (const auto mine = stream_of.find(this); mine != stream_of.end())
    Network::current()->end_stream(mine->second, "the receiver has closed it");
}

BulkOut::BulkOut(ConnectionId connection, BulkOutOptions options, net::BulkKey key,
                 Mailbox& mailbox)
    : connection_(connection),
      options_(std::move(options)),
      key_(std::move(key)),
      mailbox_(mailbox) {
  const auto stream = stream_of[this] = Network::current()->open_stream();
  stream->pump = [this] { run(); };
  stream->sender_ended = [this](const Error& error) {
    over_ = true;
    mailbox_.post({.kind = BulkEvent::Kind::out_ended,
                   .connection = connection_,
                   .item = 0,
                   .error = error,
                   .forged = false,
                   .part = {}});
  };
  Baton::current()->at(soon(), [stream, id = options_.id, port = options_.port] {
    const auto door = doors.find(port);
    if (door == doors.end() || door->second.process->ended)
      return Network::current()->end_stream(stream, "nobody listens there");
    door->second.knocks.emplace_back(id, stream);
    eventfd_write(door->second.door->fd(), 1);
  });
}

BulkOut::~BulkOut() {
  close();
  if (const auto mine = stream_of.extract(this); !mine.empty()) {
    mine.mapped()->pump = {};
    mine.mapped()->sender_ended = {};
  }
}

bool BulkOut::enqueue(std::uint64_t item, ObjectId object, BlobView bytes, std::uint64_t stamp,
                      std::uint64_t from, std::uint64_t limit) {
  if (over_) return false;
  queue_.push_back({item, object, bytes, stamp, from, limit, false});
  run();
  return true;
}

void BulkOut::allow(std::uint64_t number, BulkPart part) {
  Item* item = find(number);
  if (item == nullptr) return;
  item->limit = part.bytes;
  item->stamp = part.stamp;
  run();
}

void BulkOut::abandon(std::uint64_t number) {
  Item* item = find(number);
  if (item == nullptr) return;
  item->dropped = true;
  run();
}

void BulkOut::close() noexcept {
  over_ = true;
  if (const auto mine = stream_of.find(this); mine != stream_of.end())
    Network::current()->end_stream(mine->second, "the sender has closed it");
}

/// Sends the next piece, if the receiver is there and no piece is under way. Then the next one.
void BulkOut::run() {
  const auto stream = stream_of.at(this);
  if (over_ || stream->over || stream->moving || !stream->take) return;
  const auto item =
      std::find_if(queue_.begin(), queue_.end(), [](const Item& each) { return each.has_work(); });
  if (item == queue_.end()) return;
  stream->moving = true;
  Baton::current()->at(soon(), [this, stream, piece = *item] {
    if (!stream->pump || stream->over || stream->sender->ended) return;
    stream->moving = false;
    const std::size_t size = piece.dropped ? 0 : piece.piece();
    if (size > 0 && stream->take && !stream->receiver->ended) {
      const net::BulkHeader header{piece.object, piece.sent, static_cast<std::uint32_t>(size),
                                   piece.sent + size == piece.bytes.size(), piece.stamp};
      const Result<void> taken = stream->take(header, piece.bytes.subspan(piece.sent, size));
      if (!taken) Network::current()->end_stream(stream, taken.error().message());
    }
    sent(piece);
    run();
  });
}

}  // namespace agent
}  // namespace troupe
