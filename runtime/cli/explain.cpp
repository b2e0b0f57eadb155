/// The verb `troupe explain`: joins what processes, agents and control know about waits.
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/control_lists.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/observe/wait_graph.hpp"
#include "troupe/runtime/observe/wait_rows.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace troupe::cli {
namespace {

using observe::Fact;
using observe::RowKind;
using observe::Thing;

/// The most pages of facts that are read ahead. What is missing then is asked for one by one.
constexpr int kMostPages = 3;
/// The verb as a whole takes no longer than this.
constexpr Duration kMostTime = std::chrono::seconds(5);
constexpr std::size_t kShown = 300;  ///< the most columns of a name or a reason

/// What the cluster knows about waits, by thing.
class Facts {
 public:
  explicit Facts(Asked& asked) : asked_(asked), until_(steady_now() + kMostTime) {
    read_actors();
    observe::Question question{
        .kind = RowKind::waits, .where = {}, .sort = {}, .limit = observe::kMaxRows, .after = {}};
    for (int page = 0; page < kMostPages && steady_now() < until_; ++page) {
      question.after = read(question);
      if (question.after.empty()) break;
    }
  }

  Result<Fact> of(const Thing& asked_for) {
    const Thing thing = meant(asked_for);
    if (const Fact* fact = known(thing)) return told(*fact);
    if (thing.kind == Thing::Kind::object) {
      if (const auto made = made_by(thing)) return *made;
    }
    if (steady_now() >= until_) return Error(Code::timed_out, "no answer in 5 s");
    if (silent_.count(thing.owner) != 0) return Error(Code::unavailable, "no answer in time");
    observe::Question question{
        .kind = RowKind::waits, .where = {}, .sort = {}, .limit = observe::kMaxRows, .after = {}};
    question.where = "of = '" + thing.id + "'";
    if (thing.id.find('\'') == std::string::npos && asked_of_.insert(thing.id).second)
      read(question);
    if (const Fact* fact = known(thing)) return told(*fact);
    if (thing.kind == Thing::Kind::object) {
      if (const auto made = made_by(thing)) return *made;
      return Error(Code::invalid_argument, why_unmade());
    }
    if (thing.kind != Thing::Kind::request)
      return Error(Code::invalid_argument, "it has ended meanwhile");
    Fact passed_on;
    passed_on.thing = thing;
    passed_on.state = Fact::State::lacks;
    passed_on.why = "its node has passed it on to another node";
    return passed_on;
  }

  /// Returns the things that wait. A request waits as long as the first of its tasks.
  std::vector<Fact> waiting() {
    std::map<Thing, std::pair<std::uint64_t, std::uint64_t>> requests;  // tasks, longest wait
    std::vector<Fact> waiting;
    for (const auto& [thing, fact] : facts_) {
      const bool waits = fact.state != Fact::State::ready && fact.state != Fact::State::runs &&
                         fact.state != Fact::State::lost;
      if (thing.kind == Thing::Kind::task)
        for (const Thing& request : fact.waits_for) {
          if (request.kind != Thing::Kind::request) continue;
          auto& [tasks, longest] = requests[request];
          ++tasks;
          longest = std::max(longest, fact.since_ns);
        }
      else if (thing.kind == Thing::Kind::actor && told(fact).state == Fact::State::blocked)
        waiting.push_back(told(fact));
      else if (waits && (thing.kind == Thing::Kind::thread || thing.kind == Thing::Kind::actor))
        waiting.push_back(told(fact));
    }
    for (const auto& [request, of_tasks] : requests) {
      auto fact = of(request);
      if (!fact) continue;
      fact->count = std::max(fact->count, of_tasks.first);
      fact->since_ns = std::max(fact->since_ns, of_tasks.second);
      waiting.push_back(std::move(*fact));
    }
    return waiting;
  }
  std::vector<std::string> ids() const {
    std::set<std::string> ids;
    for (const auto& [thing, fact] : facts_)
      if (thing.kind != Thing::Kind::request) ids.insert(thing.id);
    return {ids.begin(), ids.end()};
  }
  /// Returns the thing with this id: the first of its kinds, a thread before the worker.
  /// `id`: one of ids().
  const Thing& thing_of(const std::string& id) const {
    return std::find_if(facts_.begin(), facts_.end(),
                        [&](const auto& fact) { return fact.first.id == id; })
        ->first;
  }
  void look_for(const std::string& part) {
    observe::Question question{
        .kind = RowKind::waits, .where = {}, .sort = {}, .limit = observe::kMaxRows, .after = {}};
    question.where = "of ~ '" + part + "'";
    if (part.find('\'') == std::string::npos) read(question);
  }
  const observe::Missing& missing() const noexcept { return missing_; }

 private:
  /// Returns why nobody tells of the maker of an object.
  std::string why_unmade() const {
    const auto& sources = missing_.sources();
    const auto silent = std::find_if(sources.begin(), sources.end(), [](const auto& source) {
      return source.node != observe::kControlSource;  // control makes no object
    });
    if (silent == sources.end())
      return "no process is making it: its maker has ended, or a put is under way";
    return "its maker may be " + visible_text(silent->node, kShown) +
           (silent->pid == 0 ? "" : "/" + std::to_string(silent->pid)) +
           ", which does not answer: " + visible_text(silent->why, kShown);
  }
  void read_actors() {
    ControlLists control(asked_, steady_now() + kControlAnswers, missing_);
    for (const control::ActorRow& row : control.list(control::ListRequest::What::actors).actors) {
      Fact fact;
      fact.thing = {Thing::Kind::actor, row.actor.str(), "control"};
      fact.name = row.class_name;
      fact.why = row.why;
      fact.state = row.state == control::ActorState::alive  ? Fact::State::ready
                   : row.state == control::ActorState::dead ? Fact::State::lost
                                                            : Fact::State::lacks;
      facts_[fact.thing] = std::move(fact);
    }
  }
  /// Reads a page. Returns where the next one begins; empty: nowhere.
  std::string read(const observe::Question& question) {
    const auto query = observe::Query::parse(question);
    if (!query) raise(query.error());
    const observe::Answer answer = asked_.rows(question, *query, kRowsAnswer);
    for (const observe::Row& row : answer.rows) {
      auto fact = observe::fact_of(row);
      if (!fact) continue;
      if (fact->thing.kind == Thing::Kind::worker) aliases_[fact->place] = fact->thing.id;
      Fact& kept = facts_[fact->thing];
      if (fact->name.empty()) fact->name = kept.name;  // control knows an actor's class
      kept = std::move(*fact);
    }
    missing_.add(answer);
    for (const observe::Unanswered& source : answer.unanswered)
      silent_.insert(source.pid == 0 ? source.node
                                     : source.node + "/" + std::to_string(source.pid));
    return answer.next;
  }
  const Fact* known(const Thing& thing) const {
    const auto at = facts_.find(thing);
    return at == facts_.end() ? nullptr : &at->second;
  }
  /// An object that a task or call makes has its id.
  std::optional<Fact> made_by(const Thing& object) const {
    for (const Thing::Kind kind : {Thing::Kind::task, Thing::Kind::call}) {
      const Fact* maker = known({kind, object.id, object.owner});
      if (maker == nullptr) continue;
      Fact fact;
      fact.thing = object;
      fact.state = Fact::State::waits;
      fact.waits_for = {maker->thing};
      return fact;
    }
    return std::nullopt;
  }
  /// A process of another node stands under its number on a caller's list.
  Thing meant(Thing thing) const {
    const auto at = aliases_.find(thing.id);
    if (thing.kind == Thing::Kind::worker && at != aliases_.end()) thing.id = at->second;
    return thing;
  }
  Fact told(Fact fact) const {
    if (fact.thing.kind == Thing::Kind::worker) fact.place.clear();
    for (Thing& thing : fact.waits_for) thing = meant(std::move(thing));
    if (const auto at = aliases_.find(fact.place); at != aliases_.end()) fact.place = at->second;
    return at_work(std::move(fact));
  }

  /// Replaces the worker of a task or actor by what that worker waits for. One that waits for nothing
  /// lets it run.
  Fact at_work(Fact fact) const {
    if (fact.thing.kind == Thing::Kind::actor) return of_actor(std::move(fact));
    if (fact.thing.kind != Thing::Kind::task || fact.state != Fact::State::blocked ||
        fact.waits_for.size() != 1 || fact.waits_for.front().kind != Thing::Kind::worker)
      return fact;
    const Fact* worker = known(fact.waits_for.front());
    if (worker == nullptr) return fact;
    if (worker->state != Fact::State::blocked) {
      fact.state = Fact::State::runs;
      fact.waits_for.clear();
      return fact;
    }
    const Fact* thread = known({Thing::Kind::thread, worker->thing.id, worker->thing.id});
    if (thread == nullptr) return fact;
    fact.waits_for = thread->waits_for;
    fact.any = thread->any;
    fact.since_ns = thread->since_ns;
    return fact;
  }

  /// An actor waits when its process has nothing else to run.
  Fact of_actor(Fact fact) const {
    if (fact.place.empty()) return fact;
    const Fact* thread = known({Thing::Kind::thread, fact.place, fact.place});
    if (thread != nullptr) {
      fact.state = Fact::State::blocked;
      fact.waits_for = thread->waits_for;
      fact.any = thread->any;
      fact.since_ns = thread->since_ns;
    } else if (fact.state == Fact::State::blocked) {
      fact.state = Fact::State::ready;
      fact.waits_for.clear();
    }
    return fact;
  }

  Asked& asked_;
  const Time until_;
  std::map<Thing, Fact> facts_;
  std::map<std::string, std::string> aliases_;
  std::set<std::string> asked_of_, silent_;
  observe::Missing missing_;
};

void print_lines(const Request& request, const std::vector<std::string>& lines,
                 std::string_view cause, const observe::Missing& missing) {
  if (request.json) {
    Json document{{"kind", "explanation"}, {"lines", lines}, {"unanswered", missing.json()}};
    if (!cause.empty()) document["cause"] = cause;
    print(document);
  } else {
    for (const std::string& line : lines) std::printf("%s\n", line.c_str());
  }
  print_missing(missing);
}

}  // namespace

Exit explain(const Request& request, const std::string& id) {
  Asked asked(request);
  Facts facts(asked);
  observe::WaitGraph graph([&facts](const Thing& thing) { return facts.of(thing); });
  if (id.size() > observe::kMaxIdBytes)
    throw_usage("the id is no text that a list prints: 'troupe list tasks' prints them");
  if (id.empty()) {
    const observe::Survey survey = graph.survey(facts.waiting());
    print_lines(request, survey.lines(), {}, facts.missing());
    return Exit::ok;
  }
  facts.look_for(id);
  const auto whole = observe::id_meant(id, facts.ids(), "tasks");
  if (!whole) {
    print_missing(facts.missing());
    if (facts.missing().empty()) throw Failure{Exit::usage, whole.error()};
    throw Failure{Exit::unreachable,
                  Error(whole.error().code(), whole.error().message() + kMaySilent)};
  }
  const observe::Explanation explanation = graph.explain(facts.thing_of(*whole));
  print_lines(request, explanation.lines, observe::name_of(explanation.cause), facts.missing());
  return Exit::ok;
}

}  // namespace troupe::cli
