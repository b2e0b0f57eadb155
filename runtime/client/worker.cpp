#include "troupe/runtime/client/worker.hpp"

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/machine.hpp"
#include "troupe/runtime/base/words.hpp"
#include "troupe/runtime/client/run.hpp"
#include "troupe/runtime/client/run_in_place.hpp"
#include "troupe/runtime/client/worker_end.hpp"
#include "troupe/runtime/engine/registry.hpp"
#include "troupe/runtime/os/live_stack.hpp"
#include "troupe/runtime/os/process_page.hpp"
#include "troupe/runtime/os/signals.hpp"
#include "troupe/runtime/os/throw_stack.hpp"
#include "troupe/runtime/scheduling/pace.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

namespace troupe::client {
namespace {

/// The interval between two Pace messages.
constexpr Duration kPaceInterval = std::chrono::milliseconds(250);

/// Sends the results of one call; outlives the thunk when the call is a coroutine.
class Replier final : public detail::ResultSink {
 public:
  explicit Replier(ClientEngine& engine) : engine_(engine) {}
  /// Names the function whose results these are. Called before anything is allocated.
  void runs(const char* function) noexcept { function_ = function; }
  /// Resets the sink for the next call. Only run times of tasks are reported, so calls of actors
  /// read no clock.
  void begin(const Incoming& call, std::size_t results, Time now) {
    timed_ = call.call.actor_low == 0;
    to_ = call.from;
    sequence_ = call.call.sequence;
    wanted_ = call.call.results;
    total_ = results;
    sent_ = 0;
    rooms_.resize(results);
    for (ValueRoom& room : rooms_)
      if (room.allocation) room = {};  // drops what was never published
    begun_ = ended_ = now;
  }
  /// When the last result was sent; before that, when the call began.
  Time ended() const noexcept { return ended_; }

  std::span<std::byte> allocate(std::size_t index, std::size_t size) override {
    ValueRoom& room = rooms_.at(index);
    if (size > wire::kInlineValue || room.allocation) {
      room = engine_.value_bytes().make_room(size, {function_});
    } else {
      room.size = size;
      room.inline_bytes.resize(size);
    }
    return room.bytes();
  }
  void publish(std::size_t index, std::span<const detail::ObjectHandle> refs) override {
    ValueRoom& room = rooms_.at(index);
    if (refs.empty() && !room.allocation && sent_ + 1 == total_) {
      send_plain(index, room.inline_bytes);
    } else if (wanted_ == 0) {
      room = {};  // a tell: a sealed value would have no owner
      send(index, {});
    } else {
      send(index, engine_.value_bytes().finish_room(std::move(room), refs));
    }
  }
  void forward(std::size_t index, const detail::ObjectHandle& object) override {
    OutgoingValue value;
    value.kind = wire::Value::Kind::forwarded;
    value.forward = object;
    send(index, std::move(value));
  }
  void fail(const Error& error) override { fail(error, {}); }
  void fail(const Error& error, const LostArgument& lost) {
    if (sent_ == total_) return;
    sent_ = total_;
    OutgoingValue value;
    value.lost = lost;
    value.kind = wire::Value::Kind::error;
    value.error = error.shared_info();
    engine_.reply(to_, sequence_, 0, true, ran(), value);
  }
  bool finished() const noexcept { return sent_ == total_; }

 private:
  /// Sends the last result, which is small and holds no refs.
  void send_plain(std::size_t index, BlobView bytes) {
    ++sent_;
    wire::PlainReply reply;
    reply.sequence = sequence_;
    reply.index = static_cast<std::uint32_t>(index);
    reply.has_value = wanted_ != 0;
    if (!reply.has_value) bytes = {};  // a tell
    reply.ran_ns = static_cast<std::uint64_t>(ran().count());
    reply.value.size = static_cast<std::uint32_t>(bytes.size());
    engine_.reply_plain(to_, reply, bytes);
  }
  void send(std::size_t index, OutgoingValue value) {
    ++sent_;
    if (wanted_ == 0) value = OutgoingValue{};  // a tell
    engine_.reply(to_, sequence_, static_cast<std::uint32_t>(index), sent_ == total_, ran(), value);
  }
  Duration ran() noexcept {
    if (timed_) ended_ = steady_now();
    return std::max(ended_ - begun_, Duration(0));
  }

  ClientEngine& engine_;
  const char* function_ = "";
  ProcessIndex to_;
  std::uint64_t sequence_ = 0;
  std::uint32_t wanted_ = 0;
  std::size_t total_ = 0;
  std::size_t sent_ = 0;
  std::vector<ValueRoom> rooms_;
  bool timed_ = false;
  Time begun_{}, ended_{};
};

/// The sink of a constructor, whose result is the instance: nothing is sent.
class NoResult final : public detail::ResultSink {
 public:
  std::span<std::byte> allocate(std::size_t, std::size_t size) override {
    bytes_.resize(size);
    return bytes_;
  }
  void publish(std::size_t, std::span<const detail::ObjectHandle>) override {}
  void forward(std::size_t, const detail::ObjectHandle&) override {}
  void fail(const Error&) override {}

 private:
  Blob bytes_;
};

/// An argument could not be opened: the call has not run.
struct BadArgument {
  Error error;
  LostArgument lost;
};

class Worker {
 public:
  Worker(ClientEngine& engine, os::ProcessPage& page) : engine_(engine), page_(page) {
    engine_.runs_in_place(&in_place_);
  }
  ~Worker() { engine_.runs_in_place(nullptr); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs calls until the worker is told to end. Returns whether it may end in order.
  bool loop() {
    for (;;) {
      std::shared_ptr<Incoming> call;
      std::optional<ActorStart> start;
      std::function<void()> resume;
      const std::optional<Time> waited = engine_.next_work(call, start, resume);
      if (!waited) break;
      free_since_ = std::max(free_since_, *waited);
      engine_.library_threads().apply();
      if (call) run(call);
      if (resume) resume();
      if (start) become(*start);
      output_.pass_on();
      if (call) continue;  // run() knows when it ended
      free_since_ = steady_now();
    }
    // Without an agent this process is killed soon: do not begin a destructor that may not
    // finish.
    if (instance_ != nullptr && engine_.has_lost_agent()) return false;
    if (instance_ != nullptr && class_->destroy != nullptr)
      class_->destroy(std::exchange(instance_, nullptr));
    engine_.finish_sends();
    return true;
  }

 private:
  Error located(const Error& error, const char* function, std::uint32_t attempt) const {
    return located_here(engine_, error, function, attempt);
  }

  void open(const wire::Call& call, BlobView payload) {
    arguments_.clear();
    LostArgument lost;
    try {
      arguments_.values = engine_.open_arguments(call, payload, lost);
      opened_ = steady_now();
    } catch (const Error& error) {
      ErrorInfo info = error.info();
      info.outcome = Outcome::not_executed;
      throw BadArgument{Error(std::move(info)), lost};
    }
  }

  /// Shows the arguments of a plain call where they arrived, without a copy.
  void open(const std::shared_ptr<Incoming>& call) {
    if (call->count == 0) return open(call->call, call->payload);
    arguments_.clear();
    for (std::uint32_t i = 0; i < call->count; ++i) {
      const wire::PlainRange& range = call->ranges[i];
      arguments_.values.push_back(
          {BlobView(call->payload).subspan(range.offset, range.size), {}, call});
    }
  }

  const detail::Callable* lookup(const wire::FunctionKey& key) {
    if (last_ != nullptr && key == last_key_) return last_;
    const detail::Callable* callable = engine::Registry::instance().find(key);
    if (callable == nullptr)
      throw InvalidArgument(
          Code::invalid_argument,
          "this worker's program has no such entry: caller and worker run different builds");
    last_key_ = key;
    last_ = callable;
    if (callable->kind != detail::CallableKind::method)  // an actor has the name of its class
      page_.show(callable->kind == detail::CallableKind::constructor ? callable->class_name
                                                                     : callable->name);
    return callable;
  }
  /// Refuses a method of another class than the actor's. A handle may have got another class on its
  /// way, as an object of a name that two source files give to classes of their own.
  void check_class(const detail::Callable& callable) const {
    if (callable.kind != detail::CallableKind::method) return;
    if (callable.class_name == class_->class_name) return;
    if (std::strcmp(callable.class_name, class_->class_name) == 0) return;
    throw InvalidArgument(Code::invalid_argument,
                          std::string("the actor is a ") + class_->class_name + ", and " +
                              callable.name + " is a method of " + callable.class_name);
  }
  /// Returns the sink of the next call. A sink is reused, unless a coroutine still has it.
  Replier* next_replier(const Incoming& call, std::size_t results) {
    if (!sink_ || sink_.use_count() != 1) {
      auto made = std::make_shared<Replier>(engine_);
      replier_ = made.get();
      sink_ = std::move(made);
    }
    replier_->begin(call, results, free_since_);
    return replier_;
  }

  void become(const ActorStart& order) {
    actor_ = order.start.actor;
    lifetime_ = order.start.lifetime;
    restarted_ = order.start.restarted;
    const char* name = "constructor";
    const os::NoteThrows noting;
    try {
      class_ = lookup(order.start.creation.function);
      name = class_->name;
      open(order.start.creation, order.payload);
      const std::shared_ptr<detail::ResultSink> nothing = std::make_shared<NoResult>();
      Run run(engine_, arguments_, nullptr, restarted_, nothing);
      run.belongs_to(actor_, lifetime_);
      if (const std::optional<Error> error = detail::run_thunk(*class_, run)) {
        end_if_fork(engine_, 1);
        const Error here = located(*error, name, 1);
        return engine_.created(actor_, order.start.incarnation, &here);
      }
      end_if_fork(engine_, 0);
      instance_ = run.self();
      engine_.created(actor_, order.start.incarnation, nullptr);
    } catch (const BadArgument& bad) {
      const Error error = located(bad.error, name, 1);
      engine_.created(actor_, order.start.incarnation, &error);
    } catch (...) {
      end_if_fork(engine_, 1);
      const Error error =
          located(detail::error_from_current_exception(name, detail::Phase::arguments), name, 1);
      engine_.created(actor_, order.start.incarnation, &error);
    }
  }

  void run(const std::shared_ptr<Incoming>& incoming) {
    const Incoming& call = *incoming;
    const detail::Callable* callable = nullptr;
    Replier* sink = nullptr;
    bool deferred = false;
    std::optional<Duration> waited;  // engine_.waits().waited() before the run
    const os::NoteThrows noting;
    try {
      callable = lookup(call.call.function);
      sink = next_replier(call, callable->results);
      sink->runs(callable->name);
      if (callable->kind == detail::CallableKind::method &&
          (instance_ == nullptr || call.call.actor_low != actor_.low))
        throw ActorDied(Code::actor_died, "the actor does not live in this process");
      check_class(*callable);
      open(incoming);
      waited = engine_.waits().waited();
      Run run(engine_, arguments_, instance_, restarted_, sink_);
      if (callable->kind == detail::CallableKind::method) run.belongs_to(actor_, lifetime_);
      const InPlaceRuns::Permit permit(in_place_, *callable, call.call.attempt);
      if (const std::optional<Error> error = detail::run_thunk(*callable, run)) {
        end_if_fork(engine_, 1);
        sink->fail(located(*error, callable->name, call.call.attempt));
      } else if (!run.deferred() && !sink->finished()) {
        sink->fail(Error(Code::internal, std::string(callable->name) + " ended without a result"));
      }
      deferred = run.deferred();
    } catch (const BadArgument& bad) {
      sink->fail(located(bad.error, callable->name, call.call.attempt), bad.lost);
    } catch (...) {
      end_if_fork(engine_, 1);
      if (sink == nullptr) sink = next_replier(call, 1);
      const char* name = callable != nullptr ? callable->name : "unknown function";
      sink->fail(located(detail::error_from_current_exception(name, detail::Phase::arguments), name,
                         call.call.attempt));
    }
    const Time begun = std::max(free_since_, opened_);
    free_since_ = deferred ? steady_now() : sink->ended();
    if (call.call.actor_low == 0 && waited && !deferred)
      note_pace(call.call.function, begun, *waited);
  }

  /// Adds the task's run time to the Pace report. A task that waited for values is left out: its
  /// time says nothing about this node.
  void note_pace(const wire::FunctionKey& function, Time begun, Duration waited_before) {
    if (engine_.waits().waited() != waited_before) return;
    const Duration ran = free_since_ - begun;
    pace_.add(function, 1, static_cast<std::uint64_t>(std::max(ran, Duration(0)).count()));
    if (free_since_ < next_pace_) return;
    next_pace_ = free_since_ + kPaceInterval;
    engine_.tell_pace(pace_.take());
  }

  ClientEngine& engine_;
  os::ProcessPage& page_;  ///< shows the agent what runs
  WorkerOutput output_;
  InPlaceRuns in_place_{engine_};  ///< runs tasks that the running one awaits
  Arguments arguments_;
  std::shared_ptr<detail::ResultSink> sink_;  ///< sink of the present or last call
  Replier* replier_ = nullptr;                ///< points at *sink_
  wire::FunctionKey last_key_;
  const detail::Callable* last_ = nullptr;
  const detail::Callable* class_ = nullptr;
  void* instance_ = nullptr;
  ActorId actor_;
  ObjectId lifetime_;
  bool restarted_ = false;
  /// When this thread last became free. The next call begins there, without another look at the
  /// clock.
  Time free_since_{};
  Time opened_{};  ///< when open() last opened arguments that were not plain
  scheduling::SiteRunTimes pace_;
  Time next_pace_{};
};

}  // namespace

namespace {

/// Keeps wake-ups of a process with one CPU from preempting its caller, with which it shares that
/// CPU. The caller then goes on until it waits, and the worker finds several calls.
void leave_cpu_to_caller() noexcept {
  if (affine_cpus() == 1) yield_on_wakeup();
}

/// Maps the page until the process ends, since a crash in an exit handler writes into it, too.
os::ProcessPage& open_page(Fd fd) {
  static os::ProcessPage* const page = [&fd] {
    auto mapped = os::ProcessPage::attach(std::move(fd));
    auto* const opened = new os::ProcessPage(mapped ? std::move(*mapped) : os::ProcessPage());
    if (*opened) os::record_crashes(opened->crash_area());
    return opened;
  }();
  return *page;
}

}  // namespace

void run_worker(Fd socket, std::uint64_t token, Fd fd) {
  int code = 0;
  bool started = false;
  os::outlive_group_signals();
  leave_cpu_to_caller();
  os::allow_live_stack(socket.get());
  os::ProcessPage no_page;
  os::ProcessPage& page = fd ? open_page(std::move(fd)) : no_page;
  try {
    ClientEngine engine({std::move(socket), wire::ProcessKind::worker, token, {}, &abandon_worker});
    started = true;
    const bool in_order = Worker(engine, page).loop();
    abandon_worker(false);  // threads that tasks have left get errors from here on
    engine.stop();
    // Exit handlers may still drop handles, so the engine is not destroyed.
    if (in_order) end_worker_in_order();
  } catch (const Unavailable&) {
    code = 1;  // the node went down; the agent tells those who wait for this worker
  } catch (const Error& error) {
    code = 1;
    // Otherwise the agent reports what was missing.
    if (started || error.code() != Code::out_of_memory)
      log_line("a worker could not start: %s", error.what());
  }
  end_worker(code);
}

}  // namespace troupe::client
