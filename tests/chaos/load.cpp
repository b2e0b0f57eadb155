// The load of the chaos program (load.hpp): its tasks and actors, its records in control, and the
// checks of every answer.
#include "tests/chaos/load.hpp"

#include "tests/chaos/ledger.hpp"
#include "tests/chaos/processes.hpp"
#include "troupe/troupe.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

namespace chaos {
namespace {

using namespace std::chrono_literals;
using troupe::Actor;
using troupe::ActorOptions;
using troupe::AnyRef;
using troupe::Code;
using troupe::Context;
using troupe::Error;
using troupe::Outcome;
using troupe::Placement;
using troupe::Ref;
using troupe::TaskOptions;
using Words = std::vector<std::uint64_t>;

constexpr auto kHung = 30s;  ///< a wait that takes longer counts as hung
constexpr std::size_t kActors = 6;

std::uint64_t random_word() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Words words_of(std::uint64_t seed, std::uint64_t n) {
  Words words(n);
  for (auto& word : words) word = seed = mix(seed + 1);
  return words;
}

std::uint64_t sum_of(const Words& words) {
  std::uint64_t sum = words.size();
  for (const auto word : words) sum = sum * 31 + word;
  return sum;
}

// --- code that runs in workers

/// Returns the answer, and marks of the attempt: its process, a random number and any wall
/// clock's time.
Words task(std::uint64_t x, int us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
  const auto when = std::chrono::system_clock::now().time_since_epoch().count();
  return {mix(x), static_cast<std::uint64_t>(::getpid()), random_word(),
          static_cast<std::uint64_t>(when)};
}
Words make(std::uint64_t seed, std::uint64_t n) {
  return words_of(seed, n);
}
std::uint64_t check(const Words& words) {
  return sum_of(words);
}
/// Takes all the memory that there is, up to 4 GiB.
std::uint64_t hog() {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t piece = std::size_t{16} << 20;
    void* memory = ::mmap(nullptr, piece, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    std::memset(memory, static_cast<int>(i), piece);
    sum += i;
  }
  return sum;
}

struct Tally {
  Tally(const std::string& path, std::uint64_t tag) : ledger(path), actor(tag) {}
  Words add(std::uint64_t caller, std::uint64_t sequence) {
    ledger.append({actor, caller, sequence, life});
    return {sequence, life, static_cast<std::uint64_t>(::getpid())};
  }
  Ledger ledger;
  std::uint64_t actor;
  std::uint64_t life = random_word();
};

/// Calls an actor a few times from a worker. Returns the number of calls that were answered
/// wrongly or not at all.
std::uint64_t visit(Context& ctx, const Actor<Tally>& tally, int calls) {
  const std::uint64_t caller = random_word();
  std::vector<Ref<Words>> replies;
  std::uint64_t bad = 0;
  for (int i = 1; i <= calls; ++i)
    replies.push_back(tally.call<&Tally::add>(caller, static_cast<std::uint64_t>(i)));
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const auto reply = ctx.try_get(replies[i], kHung);
    if (reply ? reply->front() != i + 1 : reply.error().code() == Code::timed_out) ++bad;
  }
  return bad;
}

// --- the driver

struct Counts {
  std::uint64_t tasks = 0, calls = 0, objects = 0, records = 0;
  std::uint64_t unknown = 0, refused = 0, ended = 0, gone = 0;
};

struct Operation {
  enum class Kind { task, call, object, put, visit, probe, hog } kind = Kind::task;
  std::uint64_t number = 0, expected = 0;
  std::size_t actor = 0;
  std::uint64_t sequence = 0;
  Clock::time_point begun = Clock::now();
  AnyRef ref, source;  ///< source: the object that the task reads
  bool at_risk = false, told = false;
};

/// An injected fault, until everything works again.
struct Mark {
  std::uint64_t number = 0;
  Clock::time_point injected{};
  std::uint64_t under_way = 0;       ///< operations up to this number must end
  std::vector<bool> actors_waiting;  ///< until a later call of the actor is answered
  std::uint64_t records = 0;         ///< rounds of records begun before the fault
  std::uint64_t probes = 0;          ///< its probe tasks under way
};

void say(const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string text = line + "\n";
  (void)!::write(STDOUT_FILENO, text.data(), text.size());
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, 400);
}

/// Keeps records in control: it makes named detached actors, finds them again and ends them.
class Records {
 public:
  Records(Context ctx, const LoadOptions& options)
      : ctx_(ctx), options_(options), thread_([this] { run(); }) {}
  ~Records() { stop(); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  /// Begins a round now. Returns the number of rounds begun before it.
  std::uint64_t hurry() {
    const std::lock_guard lock(mutex_);
    hurry_ = true;
    changed_.notify_all();
    return begun_;
  }
  /// Returns the number of the last round without an error.
  std::uint64_t good() const { return good_; }
  std::atomic<bool> full{false};
  std::atomic<std::uint64_t> refused{0};

 private:
  void run() {
    while (next()) try {
        round();
        good_ = begun_;
      } catch (const Error& error) {
        on_error(error);
      }
  }

  /// Returns the ledger's tag of this driver's n-th record. Mixing keeps tags apart, since the
  /// drivers of a round share a ledger and have consecutive seeds.
  std::uint64_t tag_of(std::uint64_t n) const { return mix(mix(options_.seed) + n); }

  bool next() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, failing_ ? 50ms : 500ms, [&] { return over_ || hurry_; });
    hurry_ = false;
    ++begun_;
    return !over_;
  }

  void round() {
    if (!failing_) {
      kept_.push_back("record-" + std::to_string(options_.seed) + "-" + std::to_string(++made_));
      acknowledged_ = false;
    }
    const std::string name = kept_.back();
    failing_ = true;
    // A request whose answer was lost may have been carried out. The actor exists already then.
    const auto made =
        ctx_.with(ActorOptions{
                      .name = name, .detached = true, .get_if_exists = true, .max_restarts = -1})
            .spawn<Tally>(options_.ledger, tag_of(made_));
    (void)ctx_.get(made.call<&Tally::add>(options_.seed, ++sequence_), kHung);
    acknowledged_ = true;
    const std::string& other = kept_[begun_ % kept_.size()];
    const auto found = ctx_.find<Tally>(other);
    if (!found) {
      say("bad lost the acknowledged name " + other + " is not known to control");
    } else {
      (void)ctx_.get(found->call<&Tally::add>(mix(options_.seed), ++sequence_), kHung);
    }
    if (kept_.size() > 4) {
      if (found && kept_.front() == other)
        ctx_.kill(*found);
      else if (const auto oldest = ctx_.find<Tally>(kept_.front()))
        ctx_.kill(*oldest);
      kept_.pop_front();
    }
    failing_ = false;
    failed_since_.reset();
  }

  void on_error(const Error& error) {
    say("note " + one_line(error.what()));
    // When control cannot write the name to its disk, the error says that no actor could be made.
    const bool no_room =
        error.code() == Code::no_space || error.code() == Code::out_of_disk ||
        std::string(error.what()).find("no actor could be made") != std::string::npos;
    if (no_room) {
      ++refused;
      if (!full) say("bad wrong a record was refused for want of space: " + one_line(error.what()));
    }
    if (acknowledged_) failing_ = false;  // the answer is lost, but not the record
    if (!failed_since_) failed_since_ = Clock::now();
    if (Clock::now() - *failed_since_ < 2 * kHung || full) return;
    say("bad hung control has kept no record for 60 s: " + one_line(error.what()));
    failed_since_.reset();
  }

  Context ctx_;
  LoadOptions options_;
  std::deque<std::string> kept_;
  bool failing_ = false, acknowledged_ = false;
  std::optional<Clock::time_point> failed_since_;
  std::uint64_t made_ = 0, sequence_ = 0;
  std::atomic<std::uint64_t> good_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false, hurry_ = false;
  std::uint64_t begun_ = 0;
  std::thread thread_;
};

class Load {
 public:
  Load(Context ctx, const LoadOptions& options)
      : ctx_(ctx), options_(options), random_(options.seed), records_(ctx, options) {
    nodes_ = ctx_.cluster().nodes;
    for (std::size_t i = 0; i < kActors; ++i) spawn(i);
    say("ready");
  }

  int run() {
    try {
      while (!finished_) step();
      return end();
    } catch (const troupe::Unavailable& error) {
      return home_is_lost(error);
    }
  }

 private:
  using Kind = Operation::Kind;

  void spawn(std::size_t i) {
    if (actors_.size() <= i) {
      actors_.resize(i + 1);
      tags_.resize(i + 1);
      sequences_.resize(i + 1);
      pids_.resize(i + 1);
    }
    tags_[i] = random_();
    actors_[i] =
        ctx_.with(ActorOptions{.placement = Placement::on(nodes_[i % nodes_.size()].id, true),
                               .max_restarts = -1})
            .spawn<Tally>(options_.ledger, tags_[i]);
  }

  void step() {
    listen();
    if (Clock::now() >= next_nodes_) {
      nodes_ = ctx_.cluster().nodes;
      next_nodes_ = Clock::now() + 200ms;
    }
    if (Clock::now() >= next_) {
      next_ = Clock::now() + (options_.canary == "quiet" ? 1000ms : 10ms);
      top_up();
    }
    if (Clock::now() >= next_tick_) {
      next_tick_ = Clock::now() + 100ms;
      tick();
      look_for_hung();
    }
    take_in(5ms);
  }

  Placement anywhere() {
    return nodes_.empty() ? Placement() : Placement::on(nodes_[random_() % nodes_.size()].id, true);
  }

  Operation& begin(Kind kind, AnyRef ref) {
    Operation operation;
    operation.kind = kind;
    operation.number = ++last_number_;
    operation.at_risk = at_risk_;
    operation.ref = std::move(ref);
    const auto id = operation.ref.id();
    return under_way_[id] = std::move(operation);
  }

  void begin_task(Kind kind, Placement where) {
    const std::uint64_t x = random_();
    auto& operation = begin(kind, ctx_.with(TaskOptions{.placement = where, .max_retries = -1})
                                      .submit<task>(x, static_cast<int>(x % 4000)));
    operation.expected = mix(x);
    if (options_.canary == "wrong" && last_number_ % 10 == 0) ++operation.expected;
  }

  void begin_call(std::size_t actor) {
    const std::uint64_t sequence = ++sequences_[actor];
    auto& operation = begin(Kind::call, actors_[actor].call<&Tally::add>(options_.seed, sequence));
    operation.actor = actor;
    operation.sequence = operation.expected = sequence;
  }

  void begin_object() {
    const std::uint64_t seed = random_(), n = 8'192 + random_() % 131'072;
    const bool put = random_() % 3 == 0;
    const auto source = put ? ctx_.put(words_of(seed, n))
                            : ctx_.with(TaskOptions{.placement = anywhere(), .max_retries = -1})
                                  .submit<make>(seed, n);
    auto& operation = begin(
        put ? Kind::put : Kind::object,
        ctx_.with(TaskOptions{.placement = anywhere(), .max_retries = -1}).submit<check>(source));
    operation.source = source;
    operation.expected = sum_of(words_of(seed, n));
  }

  std::size_t count(Kind kind) const {
    return static_cast<std::size_t>(
        std::count_if(under_way_.begin(), under_way_.end(),
                      [&](const auto& one) { return one.second.kind == kind; }));
  }

  void top_up() {
    for (std::size_t n = count(Kind::task), i = 0; n < 16 && i < 4; ++n, ++i)
      begin_task(Kind::task, random_() % 2 == 0 ? anywhere() : Placement());
    for (std::size_t i = 0, n = count(Kind::call); i < actors_.size() && n < 24; ++i, ++n)
      begin_call(i);
    if (count(Kind::object) + count(Kind::put) < 3) begin_object();
    if (count(Kind::visit) < 2 && random_() % 8 == 0)
      begin(Kind::visit, ctx_.with(TaskOptions{.placement = anywhere(), .max_retries = -1})
                             .submit<visit>(actors_[random_() % actors_.size()], 5));
  }

  // --- ended operations

  void take_in(Clock::duration most) {
    std::vector<AnyRef> refs;
    refs.reserve(under_way_.size());
    for (const auto& [id, operation] : under_way_) refs.push_back(operation.ref);
    if (refs.empty()) return std::this_thread::sleep_for(most);
    auto waited = ctx_.wait(std::move(refs), {.count = 1, .timeout = most});
    if (waited.ready.empty()) return;
    const std::size_t all = waited.pending.size();
    std::vector<AnyRef> ready = std::move(waited.ready);
    if (all > 0) {
      auto more = ctx_.wait(std::move(waited.pending), {.count = all, .timeout = 0ms});
      ready.insert(ready.end(), more.ready.begin(), more.ready.end());
    }
    for (const AnyRef& ref : ready) {
      const auto at = under_way_.find(ref.id());
      const Operation operation = std::move(at->second);
      under_way_.erase(at);
      finish(operation);
    }
    for (auto at = marks_.begin(); at != marks_.end();)
      at = has_recovered(*at) ? marks_.erase(at) : std::next(at);
  }

  void finish(const Operation& operation) {
    switch (operation.kind) {
      case Kind::task:
      case Kind::probe: return on_task(operation);
      case Kind::call: return on_call(operation);
      case Kind::object:
      case Kind::put: return on_object(operation);
      case Kind::visit: return on_visit(operation);
      case Kind::hog: return on_hog(operation);
    }
  }

  void bad(const std::string& what, const std::string& text) {
    say("bad " + what + " " + one_line(text));
  }

  /// Handles an error of an operation. It is a broken promise unless the operation's object was
  /// at risk.
  void on_error(const std::string& what, const Operation& operation, const Error& error) {
    if (error.code() == Code::unavailable) throw troupe::Unavailable(error.info());
    if (error.code() == Code::object_lost && (operation.at_risk || at_risk_)) {
      ++counts_.gone;
      return;
    }
    bad(error.code() == Code::timed_out ? "hung" : "lost", what + ": " + error.what());
  }

  void on_task(const Operation& operation) {
    const auto ref = operation.ref.as<Words>();
    const auto value = ctx_.try_get(ref, kHung);
    if (!value) return on_error("a task", operation, value.error());
    ++counts_.tasks;
    if (value->front() != operation.expected) bad("wrong", "a task's answer");
    for (Mark& mark : marks_)
      if (operation.kind == Kind::probe && operation.sequence == mark.number) --mark.probes;
    // Reads some answers again a second later. A difference would mean that two attempts were
    // published.
    if (random_() % 8 == 0) answered_.push_back({Clock::now(), ref, *value});
    while (!answered_.empty() && Clock::now() - answered_.front().at > 1s) {
      const auto again = ctx_.try_get(answered_.front().ref, kHung);
      if (again && *again != answered_.front().value)
        bad("duplicated", "two attempts of a task were published");
      if (!again) on_error("a task's answer, read again", operation, again.error());
      answered_.pop_front();
    }
  }

  void on_call(const Operation& operation) {
    const auto value = ctx_.try_get(operation.ref.as<Words>(), kHung);
    const auto key = std::pair(tags_[operation.actor], operation.sequence);
    if (!value) return on_call_error(operation, value.error());
    ++counts_.calls;
    if (value->front() != operation.expected) bad("wrong", "an actor's answer");
    acknowledged_.push_back(key);
    const auto pid = (*value)[2];
    if (pids_[operation.actor] != pid)
      say("actor " + std::to_string(operation.actor) + " " + std::to_string(pid));
    pids_[operation.actor] = pid;
    for (Mark& mark : marks_)
      if (operation.number > mark.under_way && operation.actor < mark.actors_waiting.size())
        mark.actors_waiting[operation.actor] = false;
  }

  void on_call_error(const Operation& operation, const Error& error) {
    if (error.outcome() == Outcome::unknown) {
      ++counts_.unknown;
    } else if (error.code() == Code::timed_out) {
      bad("hung", std::string("a call: ") + error.what());
    } else {
      never_.emplace_back(tags_[operation.actor], operation.sequence);
      ++counts_.refused;
    }
    if (error.code() == Code::unavailable && !is_home()) throw troupe::Unavailable(error.info());
    if (error.code() != Code::actor_died || error.outcome() == Outcome::unknown) return;
    // The actor is over for good, since no process can start it again.
    if (operation.number <= spawned_at_) return;
    ++counts_.ended;
    if (!at_risk_) bad("lost", std::string("an actor ended for good: ") + error.what());
    spawned_at_ = last_number_;
    spawn(operation.actor);
  }

  bool is_home() const {
    try {
      (void)ctx_.submit<check>(Words{1});
      return true;
    } catch (const troupe::Unavailable&) {
      return false;
    }
  }

  void on_object(const Operation& operation) {
    const auto value = ctx_.try_get(operation.ref.as<std::uint64_t>(), kHung);
    if (!value) return on_error("an object", operation, value.error());
    ++counts_.objects;
    if (*value != operation.expected) bad("wrong", "an object's checksum");
  }

  void on_visit(const Operation& operation) {
    const auto value = ctx_.try_get(operation.ref.as<std::uint64_t>(), kHung);
    if (!value) return on_error("a task that calls an actor", operation, value.error());
    counts_.calls += 5;
    if (*value != 0) bad("wrong", "a task's calls of an actor were answered wrongly, or never");
  }

  void on_hog(const Operation& operation) {
    const auto value = ctx_.try_get(operation.ref.as<std::uint64_t>(), kHung);
    say("hogged " + std::to_string(operation.sequence) + " " +
        (value ? "value" : std::string(troupe::name_of(value.error().code()))));
  }

  void look_for_hung() {
    for (auto& [id, operation] : under_way_) {
      if (operation.told || Clock::now() - operation.begun < kHung + 10s) continue;
      operation.told = true;
      static const char* const names[] = {"task", "call", "object", "put", "visit", "probe", "hog"};
      bad("hung",
          std::string("a ") + names[static_cast<int>(operation.kind)] + " has not ended for 40 s");
    }
  }

  bool has_recovered(const Mark& mark) {
    if (mark.probes != 0 || records_.good() <= mark.records) return false;
    for (const bool waiting : mark.actors_waiting)
      if (waiting) return false;
    for (const auto& [id, operation] : under_way_)
      if (operation.number <= mark.under_way) return false;
    char text[64];
    std::snprintf(text, sizeof text, "recovered %llu %.1f",
                  static_cast<unsigned long long>(mark.number), ms_since(mark.injected));
    say(text);
    return true;
  }

  // --- commands of the chaos program

  void listen() {
    pollfd entry{STDIN_FILENO, POLLIN, 0};
    while (::poll(&entry, 1, 0) == 1) {
      char buffer[512];
      const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
      if (n <= 0) {
        finished_ = true;
        return;
      }
      heard_.append(buffer, static_cast<std::size_t>(n));
      for (auto end = heard_.find('\n'); end != std::string::npos; end = heard_.find('\n')) {
        obey(std::istringstream(heard_.substr(0, end)));
        heard_.erase(0, end + 1);
      }
    }
  }

  void obey(std::istringstream line) {
    std::string verb, node;
    std::uint64_t number = 0;
    std::int64_t nanoseconds = 0;
    line >> verb;
    if (verb == "mark") {
      line >> number >> nanoseconds;
      set_mark(number, Clock::time_point(std::chrono::nanoseconds(nanoseconds)));
    } else if (verb == "risk") {
      at_risk_ = true;
      for (auto& [id, operation] : under_way_) operation.at_risk = true;
    } else if (verb == "calm") {
      at_risk_ = false;
    } else if (verb == "full" || verb == "roomy") {
      records_.full = verb == "full";
    } else if (verb == "hog") {
      line >> number >> node;
      begin_hog(number, node);
    } else if (verb == "finish") {
      finished_ = true;
    }
  }

  void set_mark(std::uint64_t number, Clock::time_point injected) {
    Mark mark;
    mark.number = number;
    mark.injected = injected;
    mark.under_way = last_number_;
    mark.actors_waiting.assign(actors_.size(), true);
    mark.records = records_.hurry();
    if (options_.canary == "hung") mark.records = ~std::uint64_t{0};
    for (const auto& node : nodes_) {
      begin_task(Kind::probe, Placement::on(node.id, true));
      under_way_order(number);
      ++mark.probes;
    }
    marks_.push_back(std::move(mark));
  }

  /// Assigns the operation that was begun last to that mark.
  void under_way_order(std::uint64_t number) {
    for (auto& [id, operation] : under_way_)
      if (operation.number == last_number_) operation.sequence = number;
  }

  void begin_hog(std::uint64_t number, const std::string& node) {
    for (const auto& known : nodes_)
      if (known.id.str() == node)
        begin(Kind::hog,
              ctx_.with(TaskOptions{.placement = Placement::on(known.id), .max_retries = 0})
                  .submit<hog>())
            .sequence = number;
  }

  void tick() {
    say("tick " + std::to_string(counts_.tasks) + " " + std::to_string(counts_.calls) + " " +
        std::to_string(counts_.objects) + " " + std::to_string(records_.good()) + " " +
        std::to_string(counts_.unknown) + " " + std::to_string(counts_.refused) + " " +
        std::to_string(counts_.ended) + " " + std::to_string(counts_.gone) + " " +
        std::to_string(records_.refused));
  }

  // --- the end

  int end() {
    const auto until = Clock::now() + kHung;
    while (!under_way_.empty() && Clock::now() < until) take_in(5ms);
    for (std::size_t i = 0; i < under_way_.size(); ++i) bad("hung", "at the end");
    records_.stop();
    const Audit audit = audit_of(options_.ledger);
    if (options_.canary == "lost" && !acknowledged_.empty())
      ++acknowledged_.back().second;  // as if that call had been acknowledged
    for (const auto& [tag, sequence] : acknowledged_)
      if (!ran(audit, tag, sequence)) bad("lost", "an acknowledged call was never executed");
    for (const auto& [tag, sequence] : never_)
      if (ran(audit, tag, sequence)) bad("wrong", "a call that ended in not_executed was executed");
    tick();
    say("end");
    return 0;
  }

  bool ran(const Audit& audit, std::uint64_t tag, std::uint64_t sequence) const {
    const auto at = audit.executed.find({tag, options_.seed});
    return at != audit.executed.end() && at->second.count(sequence) != 0;
  }

  /// Called when the driver's own node is gone: every wait must end with that error, at once.
  int home_is_lost(const troupe::Unavailable& error) {
    const auto begun = Clock::now();
    // A worker of the dead node may report its death before this process has seen it.
    while (is_home() && Clock::now() - begun < 1s) std::this_thread::sleep_for(5ms);
    if (is_home()) {
      bad("lost", std::string("a wait ended though its node lives: ") + error.what());
      return 1;
    }
    for (const auto& [id, operation] : under_way_) {
      const auto value = ctx_.try_get(operation.ref.as<Words>(), kHung);
      if (!value && value.error().code() == Code::timed_out) bad("hung", "without its node");
    }
    records_.stop();
    char text[64];
    std::snprintf(text, sizeof text, "home %.1f", ms_since(begun));
    tick();
    say(text);
    return 42;
  }

  Context ctx_;
  LoadOptions options_;
  std::mt19937_64 random_;
  std::vector<troupe::NodeInfo> nodes_;
  std::vector<Actor<Tally>> actors_;
  std::vector<std::uint64_t> tags_, sequences_, pids_;
  std::map<troupe::ObjectId, Operation> under_way_;
  std::uint64_t last_number_ = 0, spawned_at_ = 0;
  struct Answered {
    Clock::time_point at;
    Ref<Words> ref;
    Words value;
  };
  std::deque<Answered> answered_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> acknowledged_, never_;
  std::vector<Mark> marks_;
  Counts counts_;
  bool at_risk_ = false, finished_ = false;
  std::string heard_;
  Clock::time_point next_{}, next_nodes_{}, next_tick_{};
  Records records_;
};

}  // namespace

int run_load(int argc, char** argv, const LoadOptions& options) {
  try {
    troupe::enter(argc, argv);
    troupe::Session session({.address = options.address});
    Load load(session.context(), options);
    return load.run();
  } catch (const Error& error) {
    say("bad lost the load ended: " + one_line(error.what()));
    return 1;
  }
}

}  // namespace chaos
