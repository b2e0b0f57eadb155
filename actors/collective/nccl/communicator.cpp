// Written against NCCL's documentation; nothing here has run on a device so far.
#include "troupe/actors/collective/nccl/internal/communicator.hpp"

#include "troupe/actors/collective/nccl/nccl.hpp"
#include "troupe/runtime/base/deadline.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::collective {
namespace nccl {
namespace {

DataType type_of(DType type) noexcept {
  switch (type) {
    case DType::f32: return f32;
    case DType::f64: return f64;
    case DType::bf16: return bf16;
    case DType::f16: return f16;
    case DType::i32: return i32;
    case DType::i64: return i64;
    case DType::u8: break;
  }
  return u8;
}

Operation operation_of(Reduce reduce) noexcept {
  switch (reduce) {
    case Reduce::sum: break;
    case Reduce::mean: return average;
    case Reduce::max: return max;
    case Reduce::min: return min;
  }
  return sum;
}

/// Merges a result into `all`: the first error wins; without one, kInProgress wins over kSuccess.
void note(Result& all, Result one) noexcept {
  if (all == kSuccess || (all == kInProgress && one != kSuccess)) all = one;
}

bool moves(const Request& request) {
  return request.count > 0 || std::any_of(request.transfers.begin(), request.transfers.end(),
                                          [](const auto& one) { return one.count > 0; });
}

}  // namespace

NcclCommunicator::NcclCommunicator(Place place, std::unique_ptr<Control> control, Entry& entry)
    : Communicator(control->rank(), control->size(), control->timeout()),
      place_(std::move(place)),
      control_(std::move(control)),
      entry_(&entry),
      queue_(place_.device.make_queue()) {
  place_.comms->speak_for(entry, *control_);
}

NcclCommunicator::~NcclCommunicator() {
  if (!place_.comms->drain_device(*this)) control_->abort("it left with operations under way");
  place_.comms->leave(*entry_);
}

void NcclCommunicator::abort(std::string_view reason) noexcept {
  control_->abort(reason);
}

void NcclCommunicator::has_done(const Comms::Under& under) noexcept {
  count(under.flight->operation);
  control_->note_done(under.flight->operation.kind, under.sequence);
}

/// Returns whether the device carries out the operation. The memory of the first message with
/// elements decides. Messages without elements are of no kind of memory: sends and receives that
/// have only those go to the device, other operations without elements to the host.
bool NcclCommunicator::is_on_device(const Request& request) const {
  const kernels::Device& device = place_.device;
  for (const Transfers::One& one : request.transfers)
    if (one.count > 0) return device.is_device_memory(one.sends ? one.from : one.to);
  if (!request.transfers.empty() || request.kind >= OperationKind::send) return true;
  return request.count > 0 && device.is_device_memory(request.in);
}

void NcclCommunicator::run(Request& request) {
  control_->set_timeout(timeout());
  control_->run(request);
}

void NcclCommunicator::launch(const std::shared_ptr<Flight>& flight) noexcept {
  std::optional<Error> error;
  try {
    if (begin(flight)) return;
    count(flight->operation);
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    abort(e.what());
    error =
        Error(Code::internal, std::string("an operation of NCCL: ") + e.what(), Outcome::unknown);
  }
  flight->settle(std::move(error));
}

bool NcclCommunicator::begin(const std::shared_ptr<Flight>& flight) {
  Request& request = flight->operation;
  if (request.kind == OperationKind::barrier) place_.comms->drain(*this);
  if (request.kind != OperationKind::barrier && request.kind != OperationKind::split &&
      is_on_device(request))
    return enqueue(flight);
  run(request);
  if (request.kind == OperationKind::split && request.lane != 0)
    split_ = place_.comms->split(*entry_, request);
  return false;
}

bool NcclCommunicator::enqueue(const std::shared_ptr<Flight>& flight) {
  const Request& request = flight->operation;
  Request asked = request;
  // The device waits for its own event (hold_back), so the host need not.
  if (asked.terms.after.of_device() != nullptr) asked.terms.after = {};
  control_->set_timeout(timeout());
  control_->agree(asked);
  const std::uint64_t sequence = control_->sequence();
  if (!moves(request)) {
    control_->note_done(request.kind, sequence);
    return false;
  }
  try {
    hold_back(request);
    place_.comms->call(*entry_, request, [&] { return issue(request); });
    flight->on_device = place_.device.record(*queue_);
  } catch (const Error& e) {
    // The other ranks have begun the operation, so a rank that cannot go on ends the group.
    control_->abort(e.message());
    place_.comms->finish();
    throw;
  }
  flight->carrier = place_.comms;
  place_.comms->add({flight, this, sequence, deadline_after(steady_now(), timeout())});
  if (place_.synchronize) flight->wait(Time::max());
  return true;
}

/// Lets the queue wait for the operation's input: the work in compute(), and Terms::after.
void NcclCommunicator::hold_back(const Request& request) {
  kernels::Device& device = place_.device;
  device.make_current();
  const Event computed = device.record(device.compute());
  if (place_.synchronize && !computed.wait(deadline_after(steady_now(), timeout())))
    place_.comms->fail(*control_, request, Code::timed_out,
                       "the device of " + control_->name_of_rank(rank()) +
                           " did not end its work before " + std::string(name_of(request.kind)));
  device.wait(*queue_, computed);
  if (request.terms.after.of_device() != nullptr) device.wait(*queue_, request.terms.after);
}

Result NcclCommunicator::issue(const Request& o) {
  const Library& nccl = place_.comms->library();
  void* const stream = queue_->native();
  const DataType type = type_of(o.type);
  switch (o.kind) {
    case OperationKind::all_reduce:
      return nccl.all_reduce(o.in, o.out, o.count, type, operation_of(o.reduce), entry_->comm,
                             stream);
    case OperationKind::reduce_scatter:
      return nccl.reduce_scatter(o.in, o.out, o.count, type, operation_of(o.reduce), entry_->comm,
                                 stream);
    case OperationKind::all_gather:
      return nccl.all_gather(o.in, o.out, o.count, type, entry_->comm, stream);
    case OperationKind::broadcast:
      return nccl.broadcast(o.in, o.out, o.count, type, o.root, entry_->comm, stream);
    default: return issue_transfers(o);
  }
}

Result NcclCommunicator::issue_transfers(const Request& o) {
  const Library& nccl = place_.comms->library();
  Result result = kSuccess;
  note(result, nccl.group_start());
  for (const Transfers::One& one : o.transfers) {
    if (one.count == 0) continue;
    const auto count = static_cast<std::size_t>(one.count);
    note(result, one.sends ? nccl.send(one.from, count, type_of(one.type), one.peer, entry_->comm,
                                       queue_->native())
                           : nccl.receive(one.to, count, type_of(one.type), one.peer, entry_->comm,
                                          queue_->native()));
  }
  note(result, nccl.group_end());
  return result;
}

std::unique_ptr<Communicator> NcclCommunicator::join_split(const Request& done, Progress) {
  std::unique_ptr<Communicator> made = control_->join_split(done, Progress::caller);
  std::unique_ptr<Control> control(static_cast<Control*>(made.release()));
  return std::make_unique<NcclCommunicator>(place_, std::move(control),
                                            *std::exchange(split_, nullptr));
}

std::unique_ptr<Communicator> join(std::unique_ptr<Communicator> host,
                                   const kernels::Device& device, const Library& library,
                                   Duration abort_within) {
  const bool coordinates = dynamic_cast<Control*>(host.get()) != nullptr;
  if (!coordinates || device.is_cpu())
    throw InvalidArgument(Code::invalid_argument,
                          coordinates ? "a group of NCCL needs a CUDA device, not the CPU"
                                      : "a group of NCCL is made over a local, shm or nodes group");
  std::unique_ptr<Control> control(static_cast<Control*>(host.release()));
  Place place{device, std::make_shared<Comms>(library, abort_within), synchronizes(Environment())};
  UniqueId id{};
  Request request;
  request.kind = OperationKind::broadcast;
  request.in = request.out = id.bytes;
  request.count = sizeof id.bytes;
  try {
    place.device.make_current();
    if (control->rank() == 0) library.check(library.get_unique_id(&id), "ncclGetUniqueId");
    control->run(request);
    Entry& entry = place.comms->join(*control, id, request);
    control->count_anew();
    return std::make_unique<NcclCommunicator>(place, std::move(control), entry);
  } catch (const Error& e) {
    control->abort(e.message());
    place.comms->finish();
    throw;
  }
}

}  // namespace nccl

std::unique_ptr<Communicator> join_nccl_group(std::unique_ptr<Communicator> host,
                                              const kernels::Device& device,
                                              const NcclOptions& options) {
  const nccl::Library* library = nullptr;
  try {
    library = &nccl::library();
  } catch (const Error& e) {
    if (host != nullptr) host->abort(e.message());  // the other ranks wait for this one
    throw;
  }
  return nccl::join(std::move(host), device, *library, options.abort_within);
}

std::unique_ptr<Communicator> join_device_group(std::unique_ptr<Communicator> host,
                                                const kernels::Device& device) {
  if (host == nullptr || device.is_cpu()) return host;
  return join_nccl_group(std::move(host), device);
}

}  // namespace troupe::collective
