#include "tests/simulation/machine/lineage_work.hpp"

#include "tests/simulation/machine/network.hpp"
#include "troupe/runtime/task.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <type_traits>

namespace troupe::sim::machine {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<std::uint64_t>;

constexpr Duration kPatience = 120s;

struct LineageJob {
  std::uint64_t id = 0;
  std::uint64_t size = 0;   ///< of each value
  std::uint64_t links = 0;  ///< number of values that are made of the one before
};

/// The nodes at which the makers of values ran.
std::map<std::uint64_t, std::set<std::size_t>> ran_at;

std::uint64_t value_of(std::uint64_t id) {
  id ^= 0x6c696e65ULL;
  return splitmix64(id);
}
std::size_t some_node(Random& random) {
  return 1 + random.below(Baton::current()->plan().nodes);
}
TaskOptions somewhere(Random& random) {
  return {.placement = Placement::on(Network::id_of(some_node(random)), true)};
}
bool is_whole(const Values& values) {
  return !values.empty() && std::all_of(values.begin(), values.end(),
                                        [&](std::uint64_t each) { return each == values.front(); });
}

// --- functions of the program

Values first_link(LineageJob job) {
  return Values(job.size, value_of(job.id));
}
Values next_link(Values values, LineageJob job) {
  if (!is_whole(values)) Baton::current()->fail("the argument of a link has other bytes");
  return Values(job.size, values.front() + value_of(job.id));
}
std::uint64_t front_of(Values values) {
  if (!is_whole(values)) Baton::current()->fail("an argument has other bytes");
  return values.front();
}
/// Returns the last value of a chain, which this process owns. The first one is put by this process
/// or made by a task, and each lies at some node.
std::vector<Ref<Values>> chain_of(Context& ctx, LineageJob job) {
  ran_at[job.id].insert(Baton::self()->process->node);
  Random random(job.id);
  LineageJob link = job;
  ++link.id;
  Ref<Values> last = random.chance(0.5) ? ctx.put(Values(job.size, value_of(link.id)))
                                        : ctx.with(somewhere(random)).submit<first_link>(link);
  for (std::uint64_t i = 0; i < job.links; ++i) {
    ++link.id;
    last = ctx.with(somewhere(random)).submit<next_link>(last, link);
  }
  const std::vector<Ref<Values>> refs{last};
  (void)ctx.wait(refs, {.count = 1});
  return refs;
}

}  // namespace

LineageWork::LineageWork(const Context& ctx, Baton& baton, std::uint64_t seed, Did& did)
    : ctx_(ctx), baton_(baton), random_(seed ^ 0x6c696e6561ULL), did_(did) {
  ran_at.clear();
}

/// A value is lost with the node of the process that owns it, or when its tasks have no retry left.
void LineageWork::excuse(const Error& error, std::uint64_t maker) {
  const std::set<std::size_t>& nodes = ran_at[maker];
  const bool owner_is_gone = std::any_of(nodes.begin(), nodes.end(), [](std::size_t node) {
    return Network::current()->has_ended(Network::id_of(node));
  });
  if (!owner_is_gone && !is_for_memory(error) && deaths_of(baton_) < 3 && !baton_.node_is_gone())
    baton_.fail("a value that can be made again ended in an error: " + explain(error));
  ++did_.excused;
  if (error.code() == Code::object_lost) ++did_.lost;
}

template <class Value>
void LineageWork::judge(const Value& one) {
  const auto value = ctx_.try_get(one.ref, kPatience);
  if (!value) {
    if (value.error().code() == Code::timed_out)
      baton_.fail("a value that can be made again does not come: " + value.error().message());
    return excuse(value.error(), one.maker);
  }
  std::uint64_t front = 0;
  if constexpr (std::is_same_v<Value, Made>)
    front = is_whole(*value) ? value->front() : 0;
  else
    front = *value;
  if (front != one.expected) baton_.fail("a value of a chain is not the one that was computed");
  ++did_.values;
}

void LineageWork::make() {
  const LineageJob job{next_id_ += 1 << 10, 600 + random_.below(6'000), 1 + random_.below(3)};
  ++did_.calls;
  const auto refs = ctx_.try_get(ctx_.with(somewhere(random_)).submit<chain_of>(job), kPatience);
  if (!refs) return excuse(refs.error(), job.id);
  std::uint64_t expected = 0;
  for (std::uint64_t i = 1; i <= 1 + job.links; ++i) expected += value_of(job.id + i);
  made_.push_back({refs->front(), job.id, expected});
}

void LineageWork::act() {
  if (made_.empty() || (made_.size() < 4 && random_.chance(0.5))) return make();
  const std::size_t at = random_.below(made_.size());
  const std::uint64_t what = random_.below(10);
  if (what < 3) {
    judge(made_[at]);
  } else if (what < 8) {
    ++did_.calls;
    read_.push_back({ctx_.with(somewhere(random_)).submit<front_of>(made_[at].ref), made_[at].maker,
                     made_[at].expected});
  } else {
    made_.erase(made_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

void LineageWork::end() {
  for (const Read& one : read_) judge(one);
  for (const Made& one : made_) judge(one);
  read_.clear();
  made_.clear();
}

}  // namespace troupe::sim::machine
