#include "troupe/actors/collective/nodes/internal/communicator.hpp"

#include "troupe/kernels/denormals/denormals.hpp"

#include <algorithm>
#include <utility>

namespace troupe::collective::nodes {
namespace {

using std::chrono::milliseconds;

/// The longest wait for the last words of a rank that ends.
constexpr Duration kLastWords = milliseconds(200);

internal::Seats seats_of(const Gang& gang, const Layout& layout, int rank, std::uint32_t lane) {
  const int segment = layout.segment_of(rank);
  internal::Seats seats{lane, {}};
  for (int r = layout.begin_of(segment); r < layout.begin_of(segment + 1); ++r)
    seats.members.push_back(layout.world_of(r) - gang.first_of_node());
  return seats;
}

internal::ArenaCommunicator::How how_of(const Gang& gang, const Layout& layout, int rank,
                                        const NodesCommunicator::How& how,
                                        internal::Watcher* watcher) {
  internal::ArenaCommunicator::How inner;
  inner.timeout = how.timeout;
  inner.watch_processes = true;
  inner.numbers.first = layout.begin_of(layout.segment_of(rank));
  inner.numbers.size = layout.size();
  inner.numbers.whole = gang.first_of_node();
  inner.numbers.part = layout.name.lane != 0 || how.lane != 0;
  inner.watcher = watcher;
  return inner;
}

}  // namespace

NodesCommunicator::NodesCommunicator(std::shared_ptr<Gang> gang, Layout layout, int rank,
                                     const How& how)
    : Coordinator(rank, layout.size(), how.timeout),
      gang_(std::move(gang)),
      layout_(std::move(layout)),
      segment_(layout_.segment_of(rank)),
      inner_(gang_->arena(), seats_of(*gang_, layout_, rank, how.lane),
             rank - layout_.begin_of(segment_), how_of(*gang_, layout_, rank, how, this)),
      wires_(inner_, *gang_, layout_, rank) {
  if (layout_.segments() > 1 && inner_.rank() == 0) line_.emplace(wires_, inner_, layout_, rank);
  gang_->add(*this);
  start(how.progress);
}

NodesCommunicator::~NodesCommunicator() {
  stop();
  gang_->remove(*this);
  const std::lock_guard lock(busy_);
  say_last_words();
  wires_.flush(steady_now() + kLastWords);
}

// Neighbours may need to know also when this rank has made no operation.
void NodesCommunicator::say_last_words() noexcept {
  try {
    if (line_) line_->open();
  } catch (const Error&) {  // they learn it when this process ends
  }
  wires_.part();
}

void NodesCommunicator::abort(std::string_view reason) noexcept {
  inner_.abort(reason);
  gang_->tell_end(nullptr);
}

std::vector<RankProgress> NodesCommunicator::progress() const {
  std::vector<RankProgress> all(static_cast<std::size_t>(size()));
  const std::vector<RankProgress> here = inner_.progress();
  std::copy(here.begin(), here.end(), all.begin() + layout_.begin_of(segment_));
  wires_.fill(all);
  return all;
}

template <class F>
void NodesCommunicator::alone(const F& does) {
  inner_.set_timeout(timeout());
  try {
    const std::lock_guard lock(busy_);
    begun_ = steady_now();
    try {
      does();
    } catch (...) {
      wires_.end();
      if (inner_.is_over()) {
        say_last_words();
        wires_.flush(steady_now() + kLastWords);
      }
      throw;
    }
  } catch (...) {
    if (inner_.is_over()) gang_->tell_end(nullptr);
    throw;
  }
  // Another thread that ended the group meanwhile found these links in use.
  if (inner_.is_over()) gang_->tell_end(nullptr);
}

void NodesCommunicator::run(internal::Operation& operation) {
  const kernels::FlushDenormals flush;  // all ranks add alike, whatever mode the caller has set
  alone([&] { carry_out(operation); });
}

// Ranks of other nodes are not waited for: their heads compare the device's operations where the
// hosts meet next.
void NodesCommunicator::agree(const internal::Operation& operation) {
  alone([&] {
    if (operation.kind < OperationKind::send || layout_.segments() == 1) {
      inner_.agree(operation);
      if (line_) line_->note_device(operation);
      return;
    }
    inner_.begin(operation);
    if (line_) line_->open_or_fail();  // also to hear of the end of the group
    agree_on_transfers(operation);
  });
}

void NodesCommunicator::count_anew() noexcept {
  const std::lock_guard lock(busy_);
  inner_.count_anew();
  wires_.forget_progress();
}

void NodesCommunicator::end(Code code, const std::string& why) noexcept {
  inner_.end(code, why);
  gang_->tell_end(nullptr);
}

bool NodesCommunicator::check_ranks() {
  if (!inner_.check_ranks()) gang_->serve(nullptr, -1);
  if (inner_.is_over()) gang_->tell_end(nullptr);
  return inner_.is_over();
}

void NodesCommunicator::tell_end() noexcept {
  const std::unique_lock lock(busy_, std::try_to_lock);
  if (lock.owns_lock() && inner_.is_over()) say_last_words();
}

void NodesCommunicator::serve(int missing) noexcept {
  const std::unique_lock lock(busy_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  wires_.advance(true);
  wires_.check_ends();
  if (inner_.is_over())
    say_last_words();
  else if (missing >= 0)
    wires_.tell(missing, false);
}

// The thread that waits inside of run() holds `busy_`.
void NodesCommunicator::idle(int rank) noexcept {
  const int missing = layout_.world_of(layout_.begin_of(segment_) + rank);
  wires_.advance(true);
  wires_.check_ends();
  if (!inner_.is_over()) wires_.tell(missing, steady_now() - begun_ >= timeout() / 2);
  gang_->serve(this, missing);
}

std::unique_ptr<Communicator> NodesCommunicator::join_split(const internal::Operation& done,
                                                            Progress progress) {
  std::vector<int> world;
  world.reserve(done.members.size());
  for (const int member : done.members) world.push_back(layout_.world_of(member));
  const auto mine = std::find(world.begin(), world.end(), gang_->rank());
  const int rank = static_cast<int>(mine - world.begin());
  std::optional<Layout> layout = layout_of(std::move(world), gang_->node_of());
  if (!layout) throw InvalidArgument(Code::invalid_argument, "the split mixes nodes");
  layout->name = split_name_;
  return std::make_unique<NodesCommunicator>(gang_, std::move(*layout), rank,
                                             How{timeout(), progress, done.lane});
}

}  // namespace troupe::collective::nodes
