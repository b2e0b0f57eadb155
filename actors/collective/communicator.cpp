#include "troupe/actors/collective/communicator.hpp"

#include "troupe/actors/collective/call.hpp"
#include "troupe/actors/collective/internal/flight.hpp"

#include <exception>
#include <optional>

namespace troupe::collective {
namespace {

using Kind = OperationKind;

/// Indexes in Communicator::traffic_.
enum Counter : std::size_t {
  kAllReduce,
  kScatter,
  kGather,
  kBroadcast,
  kSend,
  kNorm,
  kCount,
  kPad
};

[[noreturn]] void reject(std::string message) {
  throw InvalidArgument(Code::invalid_argument, std::move(message));
}
void require(bool condition, const char* message) {
  if (!condition) reject(message);
}
void require_count(std::int64_t count) {
  require(count >= 0, "a buffer's count is negative");
}
void require_reducible(DType type, Reduce reduce) {
  const bool integer = type == DType::i32 || type == DType::i64 || type == DType::u8;
  if (integer && reduce == Reduce::mean)
    reject("a mean of " + std::string(kernels::name_of(type)) +
           " is no integer: take the sum and divide it");
}

internal::Operation operation_of(Kind kind, DType type, std::int64_t count, const Terms& terms) {
  require_count(count);
  require(terms.padding >= 0, "Terms.padding is negative");
  internal::Operation operation;
  operation.kind = kind;
  operation.type = type;
  operation.count = static_cast<std::uint64_t>(count);
  operation.terms = terms;
  return operation;
}

Counter counter_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::all_reduce: return kAllReduce;
    case Kind::reduce_scatter: return kScatter;
    case Kind::all_gather: return kGather;
    case Kind::broadcast: return kBroadcast;
    default: return kSend;
  }
}

}  // namespace

internal::Moved internal::moved_by(const Operation& o, int ranks, int rank) noexcept {
  const auto n = static_cast<std::uint64_t>(ranks);
  switch (o.kind) {
    case Kind::barrier:
    case Kind::split: return {};
    case Kind::all_reduce: return {o.bytes(), 2 * (n - 1)};
    case Kind::reduce_scatter:
    case Kind::all_gather: return {o.bytes() * n, n - 1};
    case Kind::broadcast: return {o.bytes(), rank == o.root ? (n - 1) * n : 0};
    case Kind::send:
    case Kind::receive:
    case Kind::exchange:
    case Kind::group: break;
  }
  Moved moved{0, n};
  for (const Transfers::One& one : o.transfers)
    if (one.sends)
      moved.bytes += static_cast<std::uint64_t>(one.count * kernels::size_of(one.type));
  return moved;
}

std::string_view name_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::barrier: return "barrier";
    case Kind::broadcast: return "broadcast";
    case Kind::all_reduce: return "all_reduce";
    case Kind::reduce_scatter: return "reduce_scatter";
    case Kind::all_gather: return "all_gather";
    case Kind::split: return "split";
    case Kind::send: return "send";
    case Kind::receive: return "receive";
    case Kind::exchange: return "exchange";
    case Kind::group: return "group";
  }
  return "?";
}

void Transfers::send(ConstBuffer data, int to) {
  all_.push_back({true, to, data.type, data.count, data.data, nullptr});
}
void Transfers::receive(Buffer data, int from) {
  all_.push_back({false, from, data.type, data.count, nullptr, data.data});
}

Communicator::Communicator(int rank, int size, Duration timeout) : rank_(rank), size_(size) {
  set_timeout(timeout);
}

Communicator::~Communicator() = default;

void Communicator::set_timeout(Duration timeout) {
  require(timeout > Duration::zero(),
          "a group's timeout must be positive; troupe::forever sets no limit");
  timeout_.store(timeout, std::memory_order_relaxed);
}

void Communicator::start(Progress progress) {
  if (progress == Progress::thread)
    queue_ = std::make_shared<internal::FlightQueue>(
        [this](internal::Flight& flight) { carry_out(flight); },
        [this](std::string_view reason) { abort(reason); });
}

void Communicator::stop() noexcept {
  if (queue_) queue_->stop();
}

Work Communicator::all_reduce(Buffer data, Reduce reduce, const Terms& terms) {
  require_reducible(data.type, reduce);
  internal::Operation operation = operation_of(Kind::all_reduce, data.type, data.count, terms);
  operation.reduce = reduce;
  operation.in = operation.out = data.data;
  return submit(std::move(operation));
}

Work Communicator::reduce_scatter(ConstBuffer in, Buffer out, Reduce reduce, const Terms& terms) {
  require(in.type == out.type, "reduce_scatter: in and out have different types");
  require(in.count == out.count * size_,
          "reduce_scatter: in must have size() parts as long as out");
  require_reducible(in.type, reduce);
  internal::Operation operation = operation_of(Kind::reduce_scatter, in.type, out.count, terms);
  operation.reduce = reduce;
  operation.in = in.data;
  operation.out = out.data;
  return submit(std::move(operation));
}

Work Communicator::all_gather(ConstBuffer in, Buffer out, const Terms& terms) {
  require(in.type == out.type, "all_gather: in and out have different types");
  require(out.count == in.count * size_, "all_gather: out must be size() times as long as in");
  internal::Operation operation = operation_of(Kind::all_gather, in.type, in.count, terms);
  operation.in = in.data;
  operation.out = out.data;
  return submit(std::move(operation));
}

Work Communicator::broadcast(Buffer data, int root, const Terms& terms) {
  require(root >= 0 && root < size_, "broadcast: root is not a rank of the group");
  internal::Operation operation = operation_of(Kind::broadcast, data.type, data.count, terms);
  operation.root = root;
  operation.in = operation.out = data.data;
  return submit(std::move(operation));
}

Work Communicator::send(ConstBuffer data, int to, const Terms& terms) {
  Transfers transfers;
  transfers.send(data, to);
  return transfer(Kind::send, transfers, terms);
}

Work Communicator::receive(Buffer data, int from, const Terms& terms) {
  Transfers transfers;
  transfers.receive(data, from);
  return transfer(Kind::receive, transfers, terms);
}

Work Communicator::exchange(ConstBuffer out, int to, Buffer in, int from, const Terms& terms) {
  Transfers transfers;
  transfers.send(out, to);
  transfers.receive(in, from);
  return transfer(Kind::exchange, transfers, terms);
}

Work Communicator::transfer(Kind kind, const Transfers& transfers, const Terms& terms) {
  for (const Transfers::One& one : transfers.all()) {
    require_count(one.count);
    if (one.peer < 0 || one.peer >= size_)
      reject(std::string(name_of(kind)) + ": rank " + std::to_string(one.peer) +
             " is not in a group of " + std::to_string(size_));
  }
  internal::Operation operation = operation_of(kind, DType::u8, 0, terms);
  operation.transfers = transfers.all();
  return submit(std::move(operation));
}

void Communicator::barrier() {
  submit({}).wait();
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, Progress progress) {
  internal::Operation operation = operation_of(Kind::split, DType::u8, 0, {});
  operation.color = color;
  operation.key = key;
  const Work work = submit(std::move(operation));
  const std::shared_ptr<internal::Flight> flight = work.flight_;
  flight->wait(Time::max());
  if (flight->error()) raise(*flight->error());
  const internal::Operation& done = flight->operation;
  if (done.lane == 0)
    throw NoSpace(
        Code::no_space,
        "the group has had all the splits that it was made for: make it with more of them "
        "(ShmOptions, NodesOptions or LocalOptions::splits)");
  return color < 0 ? nullptr : join_split(done, progress);
}

Work Communicator::submit(internal::Operation operation) {
  auto flight = std::make_shared<internal::Flight>();
  flight->operation = std::move(operation);
  flight->operation.limit = &flight->limit;
  flight->operation.call = Call::stamp_in(call_log());
  if (queue_) {
    flight->carrier = queue_;
    queue_->submit(flight);
  } else {
    launch(flight);
  }
  return Work(std::move(flight));
}

void Communicator::launch(const std::shared_ptr<internal::Flight>& flight) noexcept {
  carry_out(*flight);
}

void Communicator::carry_out(internal::Flight& flight) noexcept {
  std::optional<Error> error;
  try {
    run(flight.operation);
    count(flight.operation);
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    abort(e.what());
    error =
        Error(Code::internal, std::string("a collective operation: ") + e.what(), Outcome::unknown);
  }
  flight.settle(std::move(error));
}

void Communicator::count(const internal::Operation& o) noexcept {
  const internal::Moved moved = internal::moved_by(o, size_, rank_);
  Counter counter = counter_of(o.kind);
  std::uint64_t padding = static_cast<std::uint64_t>(
      o.terms.padding * kernels::size_of(o.transfers.empty() ? o.type : o.transfers.front().type));
  if (padding > moved.bytes) padding = moved.bytes;
  if (o.terms.purpose == Purpose::norm) counter = kNorm;
  if (o.terms.purpose == Purpose::count) counter = kCount;
  traffic_[counter].fetch_add((moved.bytes - padding) * moved.factor, std::memory_order_relaxed);
  traffic_[kPad].fetch_add(padding * moved.factor, std::memory_order_relaxed);
}

Traffic Communicator::traffic() const noexcept {
  const auto bytes = [this](Counter counter) {
    return traffic_[counter].load(std::memory_order_relaxed) / static_cast<std::uint64_t>(size_);
  };
  return {.all_reduce = bytes(kAllReduce),
          .reduce_scatter = bytes(kScatter),
          .all_gather = bytes(kGather),
          .broadcast = bytes(kBroadcast),
          .send = bytes(kSend),
          .norm = bytes(kNorm),
          .count = bytes(kCount),
          .padding = bytes(kPad)};
}

}  // namespace troupe::collective
