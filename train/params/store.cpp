#include "troupe/train/params/store.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/internal/sizes.hpp"
#include "troupe/train/params/internal/slab_pool.hpp"

#include <array>
#include <utility>

namespace troupe::train {

using collective::Purpose;
using collective::Terms;
using collective::Work;
using internal::reject;
using internal::require;
using kernels::Buffer;
using kernels::Event;
using kernels::Memory;

namespace {

constexpr std::int64_t kSize = sizeof(float);

float* floats(const Memory& memory) {
  return static_cast<float*>(memory.data());
}

std::byte* bytes_at(const Memory& memory, std::int64_t byte) {
  return static_cast<std::byte*>(memory.data()) + byte;
}

Buffer buffer(float* data, std::int64_t count) {
  return {data, DType::f32, count};
}

/// Returns the bytes of a parameter that every rank holds whole; the other bytes are sharded.
std::int64_t whole_bytes(int zero, std::int64_t weight, std::int64_t all) {
  if (zero == 0) return all;
  return (zero < 3 ? weight : 0) + (zero < 2 ? kSize : 0);
}

}  // namespace

struct Store::State {
  /// State of a unit. A Work in flight borrows the unit's memory, which is declared above it so
  /// that it is freed later.
  struct Unit {
    std::int64_t offset = 0;  // in slabs of all units
    int gathered = 0;         // zero = 3: calls of gather() without release()
    bool fresh = true;        // zero >= 2: nothing was reduced in this step yet
    Memory weights;           // zero = 3: while the unit is gathered
    Memory gradients;         // zero >= 2: from begin_gradients() to finish_reduce()
    bool reducing = false;
    Work weights_work, gradients_work;
  };

  State(const Index& places, kernels::Device& on, const StoreOptions& with,
        collective::Communicator* group);

  const UnitPlace& place(int unit) const {
    return index.units().at(static_cast<std::size_t>(unit));
  }
  Unit& at(int unit) { return units.at(static_cast<std::size_t>(unit)); }
  std::int64_t share_of(int unit) const { return place(unit).size / parts; }
  std::int64_t first_of(int unit) const { return share_of(unit) * options.dp_rank; }

  std::byte* weight_slab(int unit);
  /// Returns the part of the weights that this rank contributes to a gather.
  std::byte* given_weights(int unit);
  float* gradient_slab(int unit);
  /// Returns the part in f32 that this rank updates.
  float* owned_part(int unit, Part part);
  float* owned_gradients(int unit);
  /// Returns the unit's whole slab while initial values are written.
  float* initial_slab(int unit);
  /// Returns the unit's part of a slab of shares.
  float* share_in(const Memory& slab, int unit) { return floats(slab) + at(unit).offset / parts; }

  void allocate();
  Terms terms_of(int unit);
  void gather_into(int unit);
  void round(const float* from, std::byte* to, std::int64_t count);
  void keep_initial(int unit);
  void accumulate(int unit);
  void fill(float* data, std::int64_t count);
  void copy(float* to, const float* from, std::int64_t count);

  const Index& index;
  kernels::Device& device;
  StoreOptions options;
  collective::Communicator* dp;
  int parts;                 // ranks
  int zero;                  // 0 with one rank, which has nothing to shard
  bool mixed;                // 16-bit weights with f32 master weights
  std::int64_t weight_size;  // bytes of an element of the weights
  std::int64_t whole = 0, share = 0;
  Memory weights, master, gradients, tied, copies;
  Memory initial;  // of sharded master weights
  int initial_unit = -1;
  std::array<Memory, 2> moments;
  std::vector<std::int64_t> tied_offsets;  // by tensor
  std::int64_t tied_count = 0;             // aligned
  internal::SlabPool<Memory> pool;
  std::vector<Unit> units;  // declared last: operations in flight end before memory is freed
};

Store::State::State(const Index& places, kernels::Device& on, const StoreOptions& with,
                    collective::Communicator* group)
    : index(places),
      device(on),
      options(with),
      dp(group),
      parts(places.dp()),
      zero(places.dp() == 1 ? 0 : with.zero),
      mixed(with.weights != DType::f32),
      weight_size(kernels::size_of(with.weights)),
      pool([&on](std::int64_t bytes) { return on.allocate(static_cast<std::size_t>(bytes)); }) {
  require(index.is_sealed(), "a store needs an index that is sealed");
  require(options.zero >= 0 && options.zero <= 3, "StoreOptions.zero must be 0, 1, 2 or 3");
  require(options.moments >= 0 && options.moments <= 2, "StoreOptions.moments must be 0, 1 or 2");
  require(!mixed || weight_size == 2, "StoreOptions.weights must be f32, bf16 or f16");
  require(options.dp_rank >= 0 && options.dp_rank < parts,
          "StoreOptions.dp_rank is not one of the ranks that share the index");
  require(dp != nullptr || parts == 1, "a store of several ranks needs a communicator");
  if (dp != nullptr && (dp->size() != parts || dp->rank() != options.dp_rank))
    reject("the communicator is rank " + std::to_string(dp->rank()) + " of " +
           std::to_string(dp->size()) + ", and the store is rank " +
           std::to_string(options.dp_rank) + " of " + std::to_string(parts));
  allocate();
}

void Store::State::allocate() {
  for (const UnitPlace& unit : index.units()) {
    units.emplace_back().offset = whole;
    whole += unit.size;
  }
  share = whole / parts;
  for (const TensorPlace& tensor : index.tensors()) {
    tied_offsets.push_back(tied_count);
    if (tensor.tied_to >= 0) tied_count += internal::round_up(tensor.local.count(), kAlign);
  }
  const auto make = [this](std::int64_t count, std::int64_t size,
                           kernels::Where where = kernels::Where::device) {
    return device.allocate(static_cast<std::size_t>(count * size), where);
  };
  weights = make(zero < 3 ? whole : share, weight_size);
  if (mixed) master = make(zero < 1 ? whole : share, kSize);
  gradients = make(zero < 2 ? whole : share, kSize);
  tied = make(tied_count, kSize);
  copies = make(index.copy_size(), weight_size);
  for (int i = 0; i < options.moments; ++i)
    moments[static_cast<std::size_t>(i)] =
        make(zero < 1 ? whole : share, kSize,
             options.offload ? kernels::Where::host : kernels::Where::device);
}

std::byte* Store::State::weight_slab(int unit) {
  Unit& state = at(unit);
  if (zero < 3) return bytes_at(weights, state.offset * weight_size);
  if (state.gathered == 0) reject("unit " + place(unit).name + " is not gathered");
  return bytes_at(state.weights, 0);
}

std::byte* Store::State::given_weights(int unit) {
  const std::int64_t offset = at(unit).offset;
  const std::int64_t first = zero == 3 ? offset / parts : offset + (zero == 0 ? 0 : first_of(unit));
  return bytes_at(weights, first * weight_size);
}

float* Store::State::initial_slab(int unit) {
  if (zero == 0) return floats(master) + at(unit).offset;
  if (initial_unit != unit)
    reject("the initial values of unit " + place(unit).name + " have not begun");
  return floats(initial);
}

float* Store::State::gradient_slab(int unit) {
  Unit& state = at(unit);
  if (zero < 2) return floats(gradients) + state.offset;
  if (state.gradients.data() == nullptr)
    reject("the gradients of unit " + place(unit).name + " have not begun");
  return floats(state.gradients);
}

float* Store::State::owned_part(int unit, Part part) {
  if (part == Part::weights && !mixed) return reinterpret_cast<float*>(given_weights(unit));
  const Memory& slab = part == Part::weights ? master : moments[part == Part::first_moment ? 0 : 1];
  if (slab.data() == nullptr) return nullptr;
  return zero < 1 ? floats(slab) + at(unit).offset : share_in(slab, unit);
}

float* Store::State::owned_gradients(int unit) {
  if (zero >= 2) return share_in(gradients, unit);
  return floats(gradients) + at(unit).offset + (zero == 0 ? 0 : first_of(unit));
}

Terms Store::State::terms_of(int unit) {
  return {.after = device.record(device.compute()),
          .purpose = Purpose::payload,
          .padding = place(unit).size - place(unit).used};
}

void Store::State::fill(float* data, std::int64_t count) {
  device.kernels().fill(device.compute(), {.n = count, .out = data, .factor = 0});
}

void Store::State::copy(float* to, const float* from, std::int64_t count) {
  device.copy(device.compute(), to, from, static_cast<std::size_t>(count * kSize));
}

/// Starts to gather the whole slab of a unit from the ranks' parts.
void Store::State::gather_into(int unit) {
  Unit& state = at(unit);
  state.weights_work =
      dp->all_gather(Buffer(given_weights(unit), options.weights, share_of(unit)),
                     Buffer(weight_slab(unit), options.weights, place(unit).size), terms_of(unit));
}

void Store::State::round(const float* from, std::byte* to, std::int64_t count) {
  device.kernels().cast(
      device.compute(),
      {.from = DType::f32, .to = options.weights, .n = count, .in = from, .out = to});
}

/// Copies whole initial values to the master weights and rounds them to the weights.
void Store::State::keep_initial(int unit) {
  const float* values = initial_slab(unit);
  at(unit).weights_work.wait();
  if (zero > 0) copy(owned_part(unit, Part::weights), values + first_of(unit), share_of(unit));
  if (zero == 3)
    round(values + first_of(unit), given_weights(unit), share_of(unit));
  else
    round(values, weight_slab(unit), place(unit).size);
  device.compute().synchronize();  // the slab is freed next
  if (zero >= 2) pool.give_back(std::move(initial));
  initial = {};
  initial_unit = -1;
}

/// Adds the reduced gradients of one micro-batch to those of the earlier ones.
void Store::State::accumulate(int unit) {
  Unit& state = at(unit);
  float* sum = owned_gradients(unit);
  const float* part = floats(state.gradients) + first_of(unit);
  if (state.fresh)
    copy(sum, part, share_of(unit));
  else
    device.kernels().add(device.compute(), {.n = share_of(unit), .a = sum, .b = part, .out = sum});
  state.fresh = false;
  pool.give_back(std::move(state.gradients));
}

Store::Store(const Index& index, kernels::Device& device, const StoreOptions& options,
             collective::Communicator* dp)
    : state_(std::make_unique<State>(index, device, options, dp)) {}

Store::~Store() = default;

const Index& Store::index() const noexcept {
  return state_->index;
}
const StoreOptions& Store::options() const noexcept {
  return state_->options;
}

Event Store::gather(int unit) {
  State& s = *state_;
  State::Unit& state = s.at(unit);
  if (s.zero == 3 && state.gathered++ == 0 && s.place(unit).size > 0) {
    state.weights = s.pool.take(s.place(unit).size * s.weight_size);
    s.gather_into(unit);
  }
  return state.weights_work.done();
}

void Store::release(int unit) {
  State& s = *state_;
  if (s.zero < 3) return;
  State::Unit& state = s.at(unit);
  if (state.gathered == 0) reject("unit " + s.place(unit).name + " is released, but not gathered");
  if (--state.gathered > 0) return;
  state.weights_work = {};  // waits for the gather
  if (state.weights.data() != nullptr) s.pool.give_back(std::move(state.weights));
}

Buffer Store::weights(int unit) {
  std::byte* slab = state_->weight_slab(unit);
  state_->at(unit).weights_work.wait(state_->device);
  return {slab, state_->options.weights, state_->place(unit).size};
}

TensorView Store::weights_of(TensorId id) {
  const TensorPlace& use = index()[id];
  const TensorPlace& tensor = use.tied_to < 0 ? use : index()[use.tied_to];
  const std::int64_t offset = tensor.offset * state_->weight_size;
  std::byte* slab = tensor.is_copy() ? bytes_at(state_->copies, 0)
                                     : static_cast<std::byte*>(weights(tensor.unit).data);
  return {slab + offset, state_->options.weights, tensor.local};
}

void Store::begin_initial(int unit) {
  State& s = *state_;
  if (!s.mixed || s.place(unit).size == 0) return;
  const std::int64_t bytes = s.place(unit).size * kSize;
  if (s.zero == 1) s.initial = s.device.allocate(static_cast<std::size_t>(bytes));
  if (s.zero >= 2) {
    s.initial = s.pool.take(bytes);
    s.fill(floats(s.initial), s.place(unit).size);
  }
  s.initial_unit = unit;
}

TensorView Store::initial_of(TensorId id) {
  if (!state_->mixed) return weights_of(id);
  const TensorPlace& use = index()[id];
  const TensorPlace& tensor = use.tied_to < 0 ? use : index()[use.tied_to];
  if (tensor.is_copy()) return weights_of(id);
  return {state_->initial_slab(tensor.unit) + tensor.offset, DType::f32, tensor.local};
}

void Store::keep_weights(int unit) {
  if (state_->place(unit).size == 0) return;
  if (state_->mixed) return state_->keep_initial(unit);
  if (state_->zero < 3) return;
  const auto* slab = static_cast<const float*>(weights(unit).data);
  state_->copy(state_->owned_part(unit, Part::weights), slab + state_->first_of(unit),
               state_->share_of(unit));
}

void Store::begin_gradients(int unit) {
  State& s = *state_;
  if (s.zero < 2 || s.place(unit).size == 0) return;
  finish_reduce(unit);
  State::Unit& state = s.at(unit);
  if (state.gradients.data() != nullptr) return;
  state.gradients = s.pool.take(s.place(unit).size * kSize);
  s.fill(floats(state.gradients), s.place(unit).size);
}

Buffer Store::gradients(int unit) {
  return buffer(state_->gradient_slab(unit), state_->place(unit).size);
}

TensorView Store::gradients_of(TensorId id) {
  const TensorPlace& tensor = index()[id];
  if (tensor.is_copy()) reject("tensor " + tensor.name + " is a copy and has no gradient");
  float* data = tensor.tied_to < 0
                    ? state_->gradient_slab(tensor.unit) + tensor.offset
                    : floats(state_->tied) + state_->tied_offsets[static_cast<std::size_t>(id)];
  return {data, DType::f32, tensor.local};
}

void Store::add_tied(int unit) {
  State& s = *state_;
  const auto& tensors = index().tensors();
  for (TensorId id = 0; id < static_cast<TensorId>(tensors.size()); ++id) {
    const TensorId tensor = index()[id].tied_to;
    if (tensor < 0 || index()[tensor].unit != unit) continue;
    const TensorView use = gradients_of(id);
    void* sum = gradients_of(tensor).data;
    s.device.kernels().add(s.device.compute(),
                           {.n = use.count(), .a = sum, .b = use.data, .out = sum});
    s.fill(use.as<float>(), use.count());
  }
}

Event Store::reduce(int unit) {
  State& s = *state_;
  State::Unit& state = s.at(unit);
  if (s.parts == 1 || s.place(unit).size == 0) return {};
  float* slab = s.gradient_slab(unit);
  const Buffer all = buffer(slab, s.place(unit).size);
  state.reducing = true;
  if (s.zero == 0)
    state.gradients_work = s.dp->all_reduce(all, collective::Reduce::sum, s.terms_of(unit));
  else
    state.gradients_work =
        s.dp->reduce_scatter(all, buffer(slab + s.first_of(unit), s.share_of(unit)),
                             collective::Reduce::sum, s.terms_of(unit));
  return state.gradients_work.done();
}

void Store::finish_reduce(int unit) {
  State::Unit& state = state_->at(unit);
  if (!state.reducing) return;
  state.gradients_work.wait(state_->device);
  state.reducing = false;
  if (state_->zero >= 2) state_->accumulate(unit);
}

Store::Owned Store::owned(int unit) {
  State& s = *state_;
  finish_reduce(unit);
  State::Unit& state = s.at(unit);
  state.weights_work.wait();
  if (s.zero >= 2 && state.fresh) s.fill(s.owned_gradients(unit), s.share_of(unit));
  state.fresh = false;
  Owned owned;
  owned.range = s.zero == 0 ? Range{0, s.place(unit).size} : s.index.owned(unit, s.options.dp_rank);
  owned.weights = s.owned_part(unit, Part::weights);
  owned.gradients = s.owned_gradients(unit);
  owned.moments[0] = s.owned_part(unit, Part::first_moment);
  owned.moments[1] = s.owned_part(unit, Part::second_moment);
  return owned;
}

Event Store::publish(int unit) {
  State& s = *state_;
  if (s.zero == 3 && s.at(unit).gathered > 0)
    reject("unit " + s.place(unit).name + " was updated while it is gathered");
  if (s.mixed)
    s.round(s.owned_part(unit, Part::weights), s.given_weights(unit),
            s.zero == 0 ? s.place(unit).size : s.share_of(unit));
  if ((s.zero == 1 || s.zero == 2) && s.place(unit).size > 0) s.gather_into(unit);
  return s.at(unit).weights_work.done();
}

void Store::zero_gradients() {
  State& s = *state_;
  for (int unit = 0; unit < static_cast<int>(s.units.size()); ++unit) {
    finish_reduce(unit);
    s.at(unit).fresh = true;
    if (s.zero >= 2 && s.at(unit).gradients.data() != nullptr)
      s.fill(floats(s.at(unit).gradients), s.place(unit).size);
  }
  if (s.zero < 2) s.fill(floats(s.gradients), s.whole);
  s.fill(floats(s.tied), s.tied_count);
}

void Store::read_whole(int unit, Part part, std::span<float> out) {
  State& s = *state_;
  const std::int64_t size = s.place(unit).size;
  require(static_cast<std::int64_t>(out.size()) == size,
          "read_whole: out is not as long as the slab");
  s.at(unit).weights_work.wait();
  const float* mine = s.owned_part(unit, part);
  if (mine == nullptr) reject("the store has no such moment");
  if (size == 0) return;
  if (s.zero == 0) {
    s.copy(out.data(), mine, size);
    s.device.compute().synchronize();
    return;
  }
  Memory slab = s.pool.take(size * kSize);
  float* part_of = floats(slab) + s.first_of(unit);
  s.copy(part_of, mine, s.share_of(unit));
  s.dp->all_gather(buffer(part_of, s.share_of(unit)), buffer(floats(slab), size), s.terms_of(unit))
      .wait();
  s.copy(out.data(), floats(slab), size);
  s.device.compute().synchronize();
  s.pool.give_back(std::move(slab));
}

bool Store::has_whole(Part part) const noexcept {
  const State& s = *state_;
  return s.zero == 0 || (part == Part::weights && s.zero < 3 && !s.mixed);
}

void Store::read_part(int unit, Part part, Range range, std::span<float> out) {
  State& s = *state_;
  const bool whole = has_whole(part);
  const Range have = whole ? Range{0, s.place(unit).size} : s.index.owned(unit, s.options.dp_rank);
  if (range.first < have.first || range.count < 0 || range.end() > have.end() ||
      range.count != static_cast<std::int64_t>(out.size()))
    reject("read_part: the range is not one of unit " + s.place(unit).name + " on this rank");
  if (range.count == 0) return;
  s.at(unit).weights_work.wait();
  const float* from = whole && part == Part::weights && !s.mixed
                          ? reinterpret_cast<const float*>(s.weight_slab(unit))
                          : s.owned_part(unit, part);
  if (from == nullptr) reject("the store has no such moment");
  s.copy(out.data(), from + (range.first - have.first), range.count);
  s.device.compute().synchronize();
}

void Store::write_whole(int unit, Part part, std::span<const float> in) {
  State& s = *state_;
  const std::int64_t size = s.place(unit).size;
  require(static_cast<std::int64_t>(in.size()) == size,
          "write_whole: in is not as long as the slab");
  s.at(unit).weights_work.wait();
  float* mine = s.owned_part(unit, part);
  if (mine == nullptr) reject("the store has no such moment");
  if (part == Part::weights && s.mixed && size > 0) {
    begin_initial(unit);
    s.copy(s.initial_slab(unit), in.data(), size);
    s.keep_initial(unit);
  } else if (part == Part::weights && s.zero < 3) {
    s.copy(reinterpret_cast<float*>(s.weight_slab(unit)), in.data(), size);
  } else {
    const bool all = s.zero == 0;
    s.copy(mine, in.data() + (all ? 0 : s.first_of(unit)), all ? size : s.share_of(unit));
  }
  s.device.compute().synchronize();
}

Store::Bytes Store::bytes() const noexcept {
  const State& s = *state_;
  const auto size = [](const Memory& memory) { return static_cast<std::int64_t>(memory.bytes()); };
  Bytes bytes;
  bytes.weights = size(s.weights);
  bytes.master = size(s.master);
  bytes.gradients = size(s.gradients);
  bytes.moments = size(s.moments[0]) + size(s.moments[1]);
  bytes.tied = size(s.tied);
  bytes.copies = size(s.copies);
  bytes.transient = s.pool.held() + (s.zero == 1 ? size(s.initial) : 0);
  bytes.peak_transient = s.pool.peak();
  if (s.options.offload) bytes.host = bytes.moments;
  const std::int64_t all = s.weight_size + kSize * (1 + (s.mixed ? 1 : 0) + s.options.moments);
  const std::int64_t whole = whole_bytes(s.zero, s.weight_size, all);
  const std::int64_t parameters = s.index.parameter_count();
  bytes.padding = bytes.weights + bytes.master + bytes.gradients + bytes.moments + bytes.tied -
                  whole * parameters - (all - whole) * parameters / s.parts -
                  kSize * s.index.tied_size();
  return bytes;
}

}  // namespace troupe::train
