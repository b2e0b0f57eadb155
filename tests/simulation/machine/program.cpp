#include "tests/simulation/machine/program.hpp"

#include "tests/simulation/machine/far_work.hpp"
#include "tests/simulation/machine/lineage_work.hpp"
#include "troupe/runtime/actor.hpp"
#include "troupe/runtime/task.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim::machine {
namespace {

using namespace std::chrono_literals;

/// How long everything may take once the faults are over.
constexpr Duration kPatience = 120s;

struct Spec {
  std::uint64_t id =
      0;  ///< of the driver's calls: a multiple of 2^20; their children's lie between
  std::uint64_t work_us = 0;
  std::uint64_t size = 0;   ///< of a large value, of a fan
  std::uint64_t depth = 0;  ///< of a tree
  std::uint64_t throws = 0;
};

/// What the whole machine has done. All processes share it, since they are threads of one.
struct Truth {
  std::map<std::uint64_t, std::uint64_t> begun;  ///< by task
  std::set<std::uint64_t> may_have_two;          ///< tasks that ask for a second attempt
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> last_call;  ///< actor and life
  std::set<std::uint64_t> methods;  ///< numbers of the calls that have begun
  std::uint64_t lives = 0;
};
Truth truth;

std::uint64_t value_of(std::uint64_t id) {
  return splitmix64(id);
}
void work(const Spec& spec) {
  if (spec.work_us != 0)
    Baton::current()->sleep(std::chrono::microseconds(spec.work_us), "the end of its work");
}
void begin(const Spec& spec) {
  ++truth.begun[spec.id];
  Baton::current()->trace().mix(spec.id);
  work(spec);
}

// --- functions of the program

std::uint64_t leaf(Spec spec) {
  begin(spec);
  if (spec.throws != 0) throw std::runtime_error("task " + std::to_string(spec.id));
  return value_of(spec.id);
}
std::vector<std::uint64_t> large(Spec spec) {
  begin(spec);
  return std::vector<std::uint64_t>(spec.size, value_of(spec.id));
}
std::uint64_t first_of(std::vector<std::uint64_t> values, Spec spec) {
  begin(spec);
  return values.empty() ? 0 : values.front() ^ values.back() ^ values.front();
}
std::uint64_t plus(std::uint64_t a, std::uint64_t b, Spec spec) {
  begin(spec);
  return a + b;
}
std::uint64_t tree(Context& ctx, Spec spec) {
  begin(spec);
  if (spec.depth == 0) return 1;
  Spec left = spec;
  --left.depth;
  left.id += std::uint64_t{1} << (2 * spec.depth);
  Spec right = left;
  right.id += std::uint64_t{1} << (2 * spec.depth);
  auto first = ctx.submit<tree>(left);
  auto second = ctx.submit<tree>(right);
  return ctx.get(first) + ctx.get(second);
}
/// Waits inside a handler: the exception must be this task's own afterwards.
std::uint64_t catcher(Context& ctx, Spec spec) {
  begin(spec);
  const std::string mine = "mine " + std::to_string(spec.id);
  try {
    throw std::runtime_error(mine);
  } catch (...) {
    Spec child = spec;
    ++child.id;
    const std::uint64_t value = ctx.get(ctx.submit<leaf>(child));
    try {
      throw;
    } catch (const std::exception& error) {
      if (error.what() != mine)
        Baton::current()->fail("a handler caught the exception of another task");
    }
    return value;
  }
}
std::vector<Ref<std::uint64_t>> fan(Context& ctx, Spec spec) {
  begin(spec);
  std::vector<Ref<std::uint64_t>> refs;
  for (std::uint64_t i = 0; i < spec.size; ++i) {
    Spec child = spec;
    child.id += 1 + i;
    refs.push_back(i % 3 == 2 ? ctx.put(value_of(child.id)) : ctx.submit<leaf>(child));
  }
  return refs;
}
std::uint64_t sum_of(Context& ctx, const std::vector<Ref<std::uint64_t>>& refs, Spec spec) {
  begin(spec);
  std::uint64_t sum = 0;
  for (const auto& ref : refs) sum += ctx.get(ref);
  return sum;
}

struct Account {
  std::uint64_t number = 0;
  std::uint64_t life = ++truth.lives;

  explicit Account(std::uint64_t actor) : number(actor) {}
  void call_begins(const Spec& spec) {
    if (!truth.methods.insert(spec.id).second)
      Baton::current()->fail("a call of an actor began twice");
    std::uint64_t& last = truth.last_call[{number, life}];
    if (spec.id <= last) Baton::current()->fail("calls of an actor began out of order");
    last = spec.id;
    begin(spec);
  }
  std::uint64_t add(Spec spec) {
    call_begins(spec);
    return value_of(spec.id);
  }
  Task<std::uint64_t> add_later(Spec spec, Ref<std::uint64_t> amount) {
    call_begins(spec);
    const std::uint64_t value = co_await amount;
    co_return value + value_of(spec.id);
  }
};

// --- the driver

class Driver {
 public:
  Driver(const Context& ctx, Baton& baton, std::uint64_t seed, Did& did)
      : ctx_(ctx), baton_(baton), random_(seed ^ 0x64726976ULL), did_(did) {
    if (baton.plan().nodes == 1) return;
    far_.emplace(ctx, baton, seed, did);
    lineage_.emplace(ctx, baton, seed, did);
  }
  void run();

 private:
  struct Pending {
    Ref<std::uint64_t> ref;
    std::uint64_t expected = 0;
    std::uint64_t id = 0;
    std::uint64_t attempts = 0;  ///< that must have begun before an error is excused; 0: any
    bool of_actor = false, throws = false;
  };
  Spec spec() {
    Spec fresh;
    fresh.id = ++next_id_ << 20;
    fresh.work_us = random_.chance(0.7) ? random_.below(3000) : random_.below(60'000);
    if (random_.chance(0.3)) fresh.work_us = 0;
    return fresh;
  }
  std::uint64_t violence() const { return deaths_of(baton_); }
  void keep(Ref<std::uint64_t> ref, std::uint64_t expected, const Spec& spec,
            std::uint64_t attempts = 3, bool of_actor = false, bool throws = false) {
    ++did_.calls;
    pending_.push_back({std::move(ref), expected, spec.id, attempts, of_actor, throws});
  }
  void act();
  void tasks();
  void values();
  void view(const Ref<std::vector<std::uint64_t>>& big);
  void actors();
  void names();
  void waits();
  void judge(const Pending& one, Duration patience);
  void excuse(const std::string& what, const Error& error, bool may);
  void end();
  void judge_runs();

  const Context& ctx_;
  Baton& baton_;
  Random random_;
  Did& did_;
  std::uint64_t next_id_ = 0;
  std::vector<Pending> pending_;
  std::vector<std::pair<Actor<Account>, std::uint64_t>> accounts_;
  std::vector<Ref<std::vector<std::uint64_t>>> large_;
  std::vector<View<std::vector<std::uint64_t>>> views_;
  std::map<std::string, std::uint64_t> names_;
  std::optional<FarWork> far_;          ///< of a cluster
  std::optional<LineageWork> lineage_;  ///< the same
};

void Driver::excuse(const std::string& what, const Error& error, bool may) {
  if (!may && !baton_.node_is_gone() && !is_for_memory(error))
    baton_.fail(what + " ended in an error without a reason: " + explain(error));
  ++did_.excused;
  if (error.code() == Code::object_lost) ++did_.lost;
}

void Driver::judge(const Pending& one, Duration patience) {
  const Result<std::uint64_t> value = ctx_.try_get(one.ref, patience);
  baton_.trace().mix(one.id).mix(value ? *value : static_cast<std::uint64_t>(value.error().code()));
  if (value) {
    if (one.throws) baton_.fail("a task that throws gave a value");
    if (*value != one.expected) baton_.fail("a value is not the one that was computed");
    if (truth.begun[one.id] == 0) baton_.fail("a value came of a task that never began");
    ++did_.values;
    return;
  }
  const Error& error = value.error();
  if (error.code() == Code::timed_out) baton_.fail("a result does not come: " + error.message());
  if (one.throws && error.code() == Code::task_failed) return;
  if (error.outcome() == Outcome::not_executed && one.of_actor && truth.methods.count(one.id) != 0)
    baton_.fail("a call that began is reported as not executed");
  excuse("a call", error,
         violence() != 0 && (one.of_actor || one.attempts == 0 || violence() >= one.attempts));
}

void Driver::tasks() {
  Spec one = spec();
  switch (random_.below(9)) {
    case 0: return keep(ctx_.submit<leaf>(one), value_of(one.id), one);
    case 1: return keep(ctx_.with({.max_retries = 0}).submit<leaf>(one), value_of(one.id), one, 1);
    case 2:
      one.depth = 1 + random_.below(4);
      one.work_us = random_.below(300);
      return keep(ctx_.submit<tree>(one), std::uint64_t{1} << one.depth, one);
    case 3: return keep(ctx_.submit<catcher>(one), value_of(one.id + 1), one);
    case 4: one.throws = 1; return keep(ctx_.submit<leaf>(one), 0, one, 3, false, true);
    case 5: {
      const Spec other = spec();
      auto a = ctx_.submit<leaf>(one);
      auto b = random_.chance(0.5) ? ctx_.put(value_of(other.id)) : ctx_.submit<leaf>(other);
      const Spec both = spec();
      return keep(ctx_.submit<plus>(a, b, both), value_of(one.id) + value_of(other.id), both);
    }
    case 6:
      return keep(ctx_.with(TaskOptions{.isolated = true}).submit<leaf>(one), value_of(one.id),
                  one);
    case 7: {
      one.work_us = random_.below(200'000);
      truth.may_have_two.insert(one.id);
      return keep(ctx_.with(TaskOptions{.second_attempt = true}).submit<leaf>(one),
                  value_of(one.id), one);
    }
    default: {
      one.size = 1 + random_.below(6);
      std::uint64_t sum = 0;
      for (std::uint64_t i = 0; i < one.size; ++i) sum += value_of(one.id + 1 + i);
      auto refs = ctx_.submit<fan>(one);
      const Spec next = spec();
      return keep(ctx_.submit<sum_of>(refs, next), sum, next, 0);
    }
  }
}

void Driver::values() {
  Spec one = spec();
  one.size = 600 + random_.below(30'000);
  if (large_.empty() || random_.chance(0.5)) {
    if (random_.chance(0.5))
      large_.push_back(ctx_.put(std::vector<std::uint64_t>(one.size, value_of(one.id))));
    else
      large_.push_back(ctx_.submit<large>(one));
  } else if (large_.size() > 3) {
    large_.erase(large_.begin() + static_cast<std::ptrdiff_t>(random_.below(large_.size())));
  } else {
    const auto& big = large_[random_.below(large_.size())];
    if (random_.chance(0.5)) return view(big);
    const Result<std::vector<std::uint64_t>> seen = ctx_.try_get(big, kPatience);
    if (!seen) return excuse("a large value", seen.error(), violence() >= 3);
    keep(ctx_.submit<first_of>(big, one), seen->front(), one);
  }
}

/// Keeps a view for a while: its bytes must stay, whatever is freed and written beside them.
void Driver::view(const Ref<std::vector<std::uint64_t>>& big) {
  try {
    views_.push_back(ctx_.view(big, kPatience));
  } catch (const Error& error) {
    excuse("a view", error, violence() >= 3);
  }
  for (const auto& view : views_)
    for (const std::uint64_t element : *view)
      if (element != *(*view).begin()) baton_.fail("a value changed under a view");
  if (views_.size() > 2)
    views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(random_.below(views_.size())));
}

void Driver::actors() {
  if (accounts_.empty() || (accounts_.size() < 3 && random_.chance(0.2))) {
    const std::uint64_t number = ++next_id_;
    const int restarts = random_.chance(0.5) ? -1 : 0;
    accounts_.emplace_back(ctx_.with(ActorOptions{.max_restarts = restarts}).spawn<Account>(number),
                           number);
    return;
  }
  auto& [account, number] = accounts_[random_.below(accounts_.size())];
  if (random_.chance(0.06)) {
    accounts_.erase(accounts_.begin());
    return;
  }
  const std::uint64_t calls = 1 + random_.below(6);
  for (std::uint64_t i = 0; i < calls; ++i) {
    Spec one = spec();
    one.work_us /= 8;
    if (random_.chance(0.3)) {
      Spec amount = spec();
      auto ref = ctx_.submit<leaf>(amount);
      one = spec();
      keep(account.call<&Account::add_later>(one, ref), value_of(amount.id) + value_of(one.id), one,
           0, true);
    } else {
      keep(account.call<&Account::add>(one), value_of(one.id), one, 0, true);
    }
  }
}

void Driver::names() {
  using Values = std::vector<std::uint64_t>;
  const std::string name = "n" + std::to_string(random_.below(3));
  const auto known = names_.find(name);
  if (known == names_.end()) {
    Spec one = spec();
    one.size = 600 + random_.below(3000);  // lies in shared memory, where it is seen when it stays
    auto ref = random_.chance(0.5) ? ctx_.put(Values(one.size, value_of(one.id)))
                                   : ctx_.submit<large>(one);
    try {
      ctx_.detach(ref, name, kPatience);
      names_[name] = value_of(one.id);
      if (random_.chance(0.3)) ctx_.detach(ref, name, kPatience);  // changes nothing
    } catch (const Error& error) {
      excuse("a name", error, violence() >= 3);
    }
    return;
  }
  {
    const auto found = ctx_.find_object<Values>(name);
    if (!found) baton_.fail("a named object is not found");
    const Result<Values> value = ctx_.try_get(*found, kPatience);
    if (!value) return excuse("a named object", value.error(), false);
    if (value->front() != known->second || value->back() != known->second)
      baton_.fail("a named object has another value");
  }
  if (random_.chance(0.5)) return;
  if (!ctx_.forget_object(name)) baton_.fail("a name was forgotten twice");
  if (ctx_.find_object<Values>(name)) baton_.fail("a forgotten name is found");
  names_.erase(known);
}

void Driver::waits() {
  if (pending_.empty()) return;
  if (random_.chance(0.3)) {  // drops a result that nobody has seen
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(random_.below(pending_.size())));
    return;
  }
  std::vector<Ref<std::uint64_t>> refs;
  for (const Pending& one : pending_) refs.push_back(one.ref);
  if (random_.chance(0.3)) {
    std::size_t ready = 0;
    for (auto& ref : ctx_.as_completed(refs)) ready += ref ? 1 : 0;
    if (ready != pending_.size()) baton_.fail("as_completed has lost a ref");
  } else {
    const auto waited =
        ctx_.wait(refs, {.count = 1 + random_.below(refs.size()),
                         .timeout = std::chrono::microseconds(random_.below(20'000))});
    if (waited.ready.size() + waited.pending.size() != refs.size())
      baton_.fail("wait has lost a ref");
  }
  for (std::size_t i = 0; i < 1 + pending_.size() / 2 && !pending_.empty(); ++i) {
    const std::size_t at = random_.below(pending_.size());
    judge(pending_[at], kPatience);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

void Driver::act() try {
  if (lineage_ && random_.chance(0.15)) return lineage_->act();
  if (far_ && random_.chance(0.5)) return far_->act();
  const std::uint64_t what = random_.below(100);
  if (what < 45) return tasks();
  if (what < 58) return values();
  if (what < 75) return actors();
  if (what < 82) return names();
  if (what < 94) return waits();
  baton_.sleep(std::chrono::microseconds(random_.below(30'000)), "the end of its pause");
} catch (const Error& error) {
  excuse("a verb", error, false);
}

/// Everything ends, and nothing is left.
void Driver::end() {
  for (const Pending& one : pending_) judge(one, kPatience);
  pending_.clear();
  if (far_) far_->end();
  if (lineage_) lineage_->end();
  baton_.calm();
  for (const auto& [name, value] : names_)
    if (!ctx_.forget_object(name)) baton_.fail("a name is gone at the end");
  accounts_.clear();
  views_.clear();
  large_.clear();
  const Time until = baton_.now() + kPatience;
  for (;;) {
    if (baton_.node_is_gone()) return;
    const std::vector<NodeInfo> nodes = ctx_.cluster().nodes;
    const auto left = std::find_if(nodes.begin(), nodes.end(), [](const NodeInfo& each) {
      return each.store_used.count != 0 || each.cpus_free != each.cpus;
    });
    if (left == nodes.end()) return;
    const NodeInfo& node = *left;
    if (baton_.now() > until)
      baton_.fail("something is left at the end on " + node.name + ": " +
                  std::to_string(node.store_used.count) + " bytes, " +
                  std::to_string(node.cpus_free) + " of " + std::to_string(node.cpus) +
                  " CPUs are free");
    baton_.sleep(50ms, "the end of the last objects");
  }
}

/// A task begins again only after a death, or as a second attempt.
void Driver::judge_runs() {
  for (const auto& [id, times] : truth.begun)
    if (times > 1 + violence() + truth.may_have_two.count(id))
      baton_.fail("a task began again without a reason");
}

void Driver::run() {
  const std::uint64_t actions = 15 + random_.below(random_.chance(0.1) ? 120 : 40);
  const std::uint64_t most = std::min(actions, baton_.plan().most_actions);
  for (std::uint64_t i = 0; i < most && !baton_.node_is_gone(); ++i) act();
  try {
    end();
  } catch (const Error& error) {
    excuse("the end", error, false);
  }
  judge_runs();
}

}  // namespace

std::uint64_t deaths_of(const Baton& baton) {
  const auto& struck = baton.struck();
  const auto of = [&struck](Fault fault) { return struck[static_cast<std::size_t>(fault)]; };
  return of(Fault::kill) + of(Fault::kill_at_frame) + 3 * of(Fault::short_memory) +
         of(Fault::kill_agent) + of(Fault::kill_zygote);
}

bool is_for_memory(const Error& error) {
  return explain(error).find(name_of(Code::out_of_memory)) != std::string::npos;
}

void drive(const Context& ctx, Baton& baton, std::uint64_t seed, Did& did) {
  truth = {};
  Driver(ctx, baton, seed, did).run();
  for (const auto& [id, times] : truth.begun) did.begun += times;
  did.restarts = truth.lives;
}

}  // namespace troupe::sim::machine
