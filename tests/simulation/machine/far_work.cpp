#include "tests/simulation/machine/far_work.hpp"

#include "troupe/runtime/actor.hpp"
#include "troupe/runtime/task.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace troupe::sim::machine {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<std::uint64_t>;

constexpr Duration kPatience = 120s;

/// What all processes of the cluster have done.
struct Truth {
  std::map<std::uint64_t, std::set<std::size_t>> ran_at;  ///< by task: its nodes
  std::map<std::uint64_t, const Process*> life;           ///< by actor: the last one
  std::map<std::uint64_t, const Process*> owner;          ///< by task: of the references it returns
  std::set<std::uint64_t> methods;
  std::map<std::uint64_t, std::uint64_t> asked;  ///< by task: its calls of an actor
};
Truth truth;

std::uint64_t value_of(std::uint64_t id) {
  id ^= 0x666172ULL;
  return splitmix64(id);
}
const Process& self() {
  return *Baton::self()->process;
}
void begin(const FarJob& job) {
  truth.ran_at[job.id].insert(self().node);
  Baton::current()->trace().mix(job.id);
  if (job.work_us != 0)
    Baton::current()->sleep(std::chrono::microseconds(job.work_us), "the end of its work");
}
bool is_whole(const Values& values, std::uint64_t of) {
  return std::all_of(values.begin(), values.end(), [of](std::uint64_t each) { return each == of; });
}

// --- functions of the program

std::uint64_t far_leaf(FarJob job) {
  begin(job);
  return value_of(job.id);
}
Values far_large(FarJob job) {
  begin(job);
  return Values(job.size, value_of(job.id));
}
/// A large value of another one, which may lie elsewhere.
Values far_next(Values values, FarJob job) {
  begin(job);
  if (values.empty() || !is_whole(values, values.front()))
    Baton::current()->fail("an argument from another node has other bytes");
  return Values(job.size, values.front() + value_of(job.id));
}
std::uint64_t far_front(Values values, FarJob job) {
  begin(job);
  if (values.empty() || !is_whole(values, values.front()))
    Baton::current()->fail("an argument from another node has other bytes");
  return values.front();
}
/// Returns references to values that this process owns. They are there, since a call that has not
/// ended ends with the process that awaits it.
std::vector<Ref<Values>> far_refs(Context& ctx, FarJob job) {
  begin(job);
  truth.owner[job.id] = &self();
  std::vector<Ref<Values>> refs;
  FarJob child = job;
  child.id = job.id + 1;
  child.work_us = 0;
  refs.push_back(ctx.submit<far_large>(child));
  FarJob next = child;
  next.id = job.id + 2;
  refs.push_back(ctx.submit<far_next>(refs.front(), next));
  (void)ctx.wait(refs, {.count = refs.size()});
  return refs;
}
std::vector<Ref<Values>> far_put(Context& ctx, FarJob job) {
  begin(job);
  return {ctx.put(Values(job.size, value_of(job.id)),
                  {.replicas = static_cast<int>(job.replicas), .timeout = 30s})};
}

struct Teller {
  std::uint64_t number = 0;

  explicit Teller(std::uint64_t actor) : number(actor) {
    const Process*& last = truth.life[number];
    const auto lives_on = [](const Process& process) {
      if (process.ended) return false;
      for (const Process& other : Baton::current()->processes())  // a dead agent's end a bit later
        if (other.node == process.node && other.name == std::string_view("agent") && other.ended)
          return false;
      return true;
    };
    if (last != nullptr && last != &self() && lives_on(*last))
      Baton::current()->fail("an actor has two lives at once");
    last = &self();
  }
  std::uint64_t tell(FarJob job) {
    if (!truth.methods.insert(job.id).second)
      Baton::current()->fail("a call of an actor began twice");
    begin(job);
    return value_of(job.id);
  }
};
/// Calls an actor from a node that may be a third one.
std::uint64_t far_ask(Context& ctx, Actor<Teller> teller, FarJob job) {
  begin(job);
  FarJob call = job;
  call.id += ++truth.asked[job.id];
  return ctx.get(teller.call<&Teller::tell>(call)) - value_of(call.id) + value_of(job.id);
}

}  // namespace

struct FarWork::Actors {
  std::vector<Actor<Teller>> all;
};

FarWork::FarWork(const Context& ctx, Baton& baton, std::uint64_t seed, Did& did)
    : ctx_(ctx),
      baton_(baton),
      random_(seed ^ 0x66617221ULL),
      did_(did),
      next_id_(1ULL << 40),
      actors_(std::make_unique<Actors>()) {
  truth = {};
  for (const NodeInfo& node : ctx.cluster().nodes) nodes_.push_back(node.id);
  std::sort(nodes_.begin(), nodes_.end());
}
FarWork::~FarWork() = default;

FarJob FarWork::job() {
  FarJob fresh;
  fresh.id = next_id_ += 1 << 10;
  if (random_.chance(0.7))
    fresh.work_us = random_.chance(0.7) ? random_.below(3000) : random_.below(60'000);
  fresh.size = 600 + random_.below(random_.chance(0.3) ? 60'000 : 6'000);
  return fresh;
}
NodeId FarWork::some_node() {
  return nodes_[random_.below(nodes_.size())];
}
TaskOptions FarWork::somewhere() {
  TaskOptions options;
  if (random_.chance(0.6))
    options.placement = Placement::on(some_node(), true);
  else if (random_.chance(0.6))
    options.placement = Placement::spread;
  return options;
}

std::uint64_t FarWork::dead_nodes() const {
  return baton_.struck()[static_cast<std::size_t>(Fault::kill_agent)];
}
bool FarWork::is_node_dead(std::size_t node) const {
  const std::list<Process>& all = baton_.processes();
  return std::any_of(all.begin(), all.end(), [node](const Process& each) {
    return each.node == node && each.ended && each.name == std::string_view("agent");
  });
}
bool FarWork::is_owner_dead(const Process* owner) const {
  return owner != nullptr && is_node_dead(owner->node);
}
bool FarWork::is_refused(const Small& one, const Error& error) const {
  const std::list<Process>& all = baton_.processes();
  return one.only && error.code() == Code::infeasible &&
         std::any_of(all.begin(), all.end(), [&one](const Process& each) {
           return each.node == one.only.low && each.ended && !each.is_up &&
                  each.name == std::string_view("zygote");
         });
}
std::uint64_t FarWork::deaths() const {
  return deaths_of(baton_);
}
void FarWork::excuse(const char* what, const Error& error, bool may) {
  if (!may && !is_for_memory(error) && !baton_.node_is_gone())
    baton_.fail(std::string(what) + " ended in an error without a reason: " + explain(error));
  ++did_.excused;
  if (error.code() == Code::object_lost) ++did_.lost;
}

void FarWork::judge(const Small& one) {
  const Result<std::uint64_t> value = ctx_.try_get(one.ref, kPatience);
  baton_.trace().mix(one.id).mix(value ? *value : static_cast<std::uint64_t>(value.error().code()));
  if (!value) {
    if (value.error().code() == Code::timed_out)
      baton_.fail("a result does not come: " + value.error().message());
    const bool no_node = (one.only && is_node_dead(one.only.low)) || is_owner_dead(one.owner) ||
                         is_refused(one, value.error());
    return excuse("a call on another node", value.error(),
                  no_node || (deaths() != 0 && deaths() >= one.deaths));
  }
  if (*value != one.expected) baton_.fail("a value is not the one that was computed");
  if (one.only && truth.ran_at[one.id] != std::set<std::size_t>{one.only.low})
    baton_.fail("a task ran on another node than the one that it was for");
  ++did_.values;
}

void FarWork::judge(const Large& one) {
  const Result<Values> value = ctx_.try_get(one.ref, kPatience);
  if (!value) {
    if (value.error().code() == Code::timed_out)
      baton_.fail("a large value does not come: " + value.error().message());
    const bool may = one.copies > 1
                         ? dead_nodes() >= one.copies
                         : is_owner_dead(one.owner) || (deaths() != 0 && deaths() >= one.deaths);
    return excuse(one.copies > 1 ? "a value with replicas" : "a large value", value.error(), may);
  }
  if (value->empty() || !is_whole(*value, one.expected))
    baton_.fail("a large value is not the one that was computed");
  ++did_.values;
}

void FarWork::tasks() {
  const FarJob one = job();
  ++did_.calls;
  if (random_.chance(0.3)) {
    const NodeId only = some_node();
    small_.push_back(
        {ctx_.with(TaskOptions{.placement = Placement::on(only)}).submit<far_leaf>(one), one.id,
         value_of(one.id), 3, only});
    return;
  }
  small_.push_back(
      {ctx_.with(somewhere()).submit<far_leaf>(one), one.id, value_of(one.id), 3, NodeId{}});
}

/// Begins or prolongs a chain of large values, or reads one.
void FarWork::chains() {
  const FarJob one = job();
  ++did_.calls;
  if (large_.empty() || (large_.size() < 4 && random_.chance(0.4))) {
    large_.push_back({ctx_.with(somewhere()).submit<far_large>(one), value_of(one.id), 3, 1});
    return;
  }
  const std::size_t at = random_.below(large_.size());
  Large& last = large_[at];
  if (random_.chance(0.35)) {
    const std::uint64_t expected = last.expected + value_of(one.id);
    Large next{ctx_.with(somewhere()).submit<far_next>(last.ref, one), expected,
               last.copies > 1 ? 3 : last.deaths, 1, last.owner};
    if (random_.chance(0.5))
      large_[at] = std::move(next);  // the chain's last value alone is held
    else if (large_.size() < 6)
      large_.push_back(std::move(next));
  } else if (random_.chance(0.5)) {
    small_.push_back({ctx_.with(somewhere()).submit<far_front>(last.ref, one), one.id,
                      last.expected, last.copies > 1 ? 3 : last.deaths, NodeId{}, last.owner});
  } else {
    judge(last);
    if (random_.chance(0.4)) large_.erase(large_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

void FarWork::returned_refs() {
  const FarJob one = job();
  ++did_.calls;
  const Result<std::vector<Ref<Values>>> refs =
      ctx_.try_get(ctx_.with(somewhere()).submit<far_refs>(one), kPatience);
  if (!refs) return excuse("a task that returns refs", refs.error(), deaths() >= 3);
  const std::uint64_t first = value_of(one.id + 1);
  const Process* const owner = truth.owner.at(one.id);
  if (random_.chance(0.5)) large_.push_back({refs->at(0), first, 3, 1, owner});
  large_.push_back({refs->at(1), first + value_of(one.id + 2), 3, 1, owner});
}

/// A value with replicas, put by this process or by a task elsewhere.
void FarWork::replicas() {
  FarJob one = job();
  one.replicas = 2 + random_.below(2);
  ++did_.calls;
  if (random_.chance(0.4)) {
    const Values values(one.size, value_of(one.id));
    try {
      large_.push_back(
          {ctx_.put(values, {.replicas = static_cast<int>(one.replicas), .timeout = 30s}),
           value_of(one.id), 0, one.replicas});
    } catch (const Error& error) {
      excuse("put with replicas", error, dead_nodes() != 0);
    }
    return;
  }
  const auto refs = ctx_.try_get(ctx_.with(somewhere()).submit<far_put>(one), kPatience);
  if (!refs) return excuse("a task that puts", refs.error(), dead_nodes() != 0 || deaths() >= 3);
  large_.push_back({refs->at(0), value_of(one.id), 0, one.replicas});
}

void FarWork::names() {
  const std::string name = "far" + std::to_string(random_.below(2));
  const auto known = names_.find(name);
  if (known == names_.end()) {
    const auto with =
        std::find_if(large_.begin(), large_.end(), [](const Large& one) { return one.copies > 1; });
    if (with == large_.end()) return replicas();
    try {
      ctx_.detach(with->ref, name, kPatience);
    } catch (const Error& error) {
      return excuse("a name", error, dead_nodes() >= with->copies);
    }
    names_.emplace(name, std::move(*with));
    names_.at(name).ref = {};
    large_.erase(with);
    return;
  }
  auto found = ctx_.find_object<Values>(name);
  if (!found) baton_.fail("a named object is not found");
  judge(Large{*found, known->second.expected, 0, known->second.copies});
  if (random_.chance(0.5)) return;
  if (!ctx_.forget_object(name)) baton_.fail("a name was forgotten twice");
  names_.erase(known);
}

void FarWork::look() {
  if (!large_.empty() && random_.chance(0.3)) {
    std::vector<Ref<Values>> refs;
    for (const Large& one : large_) refs.push_back(one.ref);
    if (ctx_.locations(refs).size() != refs.size()) baton_.fail("locations() has lost a ref");
    return;
  }
  for (std::size_t i = 0; i < 1 + small_.size() / 2 && !small_.empty(); ++i) {
    const std::size_t at = random_.below(small_.size());
    judge(small_[at]);
    small_.erase(small_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

void FarWork::act() try {
  const std::uint64_t what = random_.below(100);
  if (what < 22) return tasks();
  if (what < 45) return chains();
  if (what < 55) return returned_refs();
  if (what < 65) return replicas();
  if (what < 73) return names();
  if (what >= 88) return look();
  std::vector<Actor<Teller>>& tellers = actors_->all;
  if (tellers.size() < 2 && random_.chance(0.6)) {
    ActorOptions options;
    options.placement = Placement::on(some_node(), true);
    options.max_restarts = random_.chance(0.6) ? -1 : 0;
    tellers.push_back(ctx_.with(options).spawn<Teller>(++next_id_));
  } else if (!tellers.empty()) {
    const Actor<Teller> teller = tellers[random_.below(tellers.size())];
    if (random_.chance(0.05)) return void(tellers.erase(tellers.begin()));
    ++did_.calls;
    FarJob one = job();
    one.work_us /= 8;
    if (random_.chance(0.4))
      small_.push_back({ctx_.with(somewhere()).submit<far_ask>(teller, one), one.id,
                        value_of(one.id), 0, NodeId{}});
    else
      small_.push_back({teller.call<&Teller::tell>(one), one.id, value_of(one.id), 0, NodeId{}});
  }
} catch (const Error& error) {
  excuse("a verb of several nodes", error, false);
}

void FarWork::end() {
  for (const Small& one : small_) judge(one);
  for (const Large& one : large_) judge(one);
  for (const auto& [name, one] : names_)
    if (!ctx_.forget_object(name)) baton_.fail("a name is gone at the end");
  small_.clear();
  large_.clear();
  names_.clear();
  actors_->all.clear();
}

}  // namespace troupe::sim::machine
