#include "troupe/runtime/client/worker.hpp"

#include "troupe/runtime/process/registry.hpp"
#include "troupe/runtime/process/throw_stack.hpp"

#include <cxxabi.h>
#include <unistd.h>
#include <cstdio>
#include <exception>
#include <optional>
#include <utility>

namespace troupe::client {
namespace {

/// Sends the results of one call; outlives the thunk when the call is a coroutine.
class Replier final : public detail::ResultSink {
 public:
  Replier(ClientEngine& engine, const Incoming& call, std::size_t results)
      : engine_(engine),
        to_(call.from),
        sequence_(call.call.sequence),
        wanted_(call.call.results),
        total_(results),
        rooms_(results),
        begun_(steady_now()) {}

  std::span<std::byte> allocate(std::size_t index, std::size_t size) override {
    rooms_.at(index) = engine_.make_room(size);
    return rooms_[index].bytes();
  }
  void publish(std::size_t index, std::span<const detail::ObjectHandle> refs) override {
    send(index, engine_.finish_room(std::move(rooms_.at(index)), refs));
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
    engine_.reply(to_, sequence_, 0, true, steady_now() - begun_, value);
  }
  bool finished() const noexcept { return sent_ == total_; }

 private:
  void send(std::size_t index, OutgoingValue value) {
    ++sent_;
    if (wanted_ == 0) value = OutgoingValue{};  // a tell
    engine_.reply(to_, sequence_, static_cast<std::uint32_t>(index), sent_ == total_,
                  steady_now() - begun_, value);
  }

  ClientEngine& engine_;
  std::uint64_t to_;
  std::uint64_t sequence_;
  std::uint32_t wanted_;
  std::size_t total_;
  std::size_t sent_ = 0;
  std::vector<ValueRoom> rooms_;
  Time begun_;
};

/// A constructor's result is the instance; nothing travels.
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

class Run final : public detail::Invocation {
 public:
  Run(ClientEngine& engine, std::vector<detail::Value> values, void* self, bool restarted,
      std::shared_ptr<detail::ResultSink> sink)
      : engine_(engine),
        values_(std::move(values)),
        self_(self),
        restarted_(restarted),
        sink_(std::move(sink)) {
    views_.reserve(values_.size());
    for (const auto& value : values_) views_.push_back({value.bytes, value.refs, &value.keep});
  }
  std::span<const detail::ArgumentView> arguments() const override { return views_; }
  detail::Engine& engine() const override { return engine_; }
  void* self() const override { return self_; }
  void set_self(void* instance) override { self_ = instance; }
  std::shared_ptr<detail::ResultSink> defer() override {
    deferred_ = true;
    return sink_;
  }
  bool restarted() const override { return restarted_; }
  detail::ActorHandle actor() const override {
    return actor_ ? engine_.self(actor_, lifetime_) : detail::ActorHandle{};
  }
  /// Says which actor runs this method.
  void belongs_to(ActorId actor, ObjectId lifetime) noexcept {
    actor_ = actor;
    lifetime_ = lifetime;
  }
  bool deferred() const noexcept { return deferred_; }

  std::span<std::byte> allocate(std::size_t i, std::size_t n) override {
    return sink_->allocate(i, n);
  }
  void publish(std::size_t i, std::span<const detail::ObjectHandle> refs) override {
    sink_->publish(i, refs);
  }
  void forward(std::size_t i, const detail::ObjectHandle& object) override {
    sink_->forward(i, object);
  }
  void fail(const Error& error) override { sink_->fail(error); }

 private:
  ClientEngine& engine_;
  std::vector<detail::Value> values_;
  std::vector<detail::ArgumentView> views_;
  void* self_;
  bool restarted_;
  bool deferred_ = false;
  ActorId actor_;
  ObjectId lifetime_;
  std::shared_ptr<detail::ResultSink> sink_;
};

/// An argument could not be opened: the call has not run.
struct BadArgument {
  Error error;
  LostArgument lost;
};

class Worker {
 public:
  explicit Worker(ClientEngine& engine) : engine_(engine) {}

  void loop() {
    for (;;) {
      std::optional<Incoming> call;
      std::optional<ActorStart> start;
      std::function<void()> resume;
      if (!engine_.next_work(call, start, resume)) break;
      if (resume) resume();
      if (start) become(*start);
      if (call) run(*call);
    }
    if (instance_ != nullptr && class_->destroy != nullptr)
      class_->destroy(std::exchange(instance_, nullptr));
  }

 private:
  Error located(const Error& error, const char* function, std::uint32_t attempt) const {
    ErrorInfo info = error.info();
    info.origin.node = engine_.node_name();
    info.origin.pid = ::getpid();
    if (info.origin.function.empty()) info.origin.function = function;
    info.origin.attempt = static_cast<int>(attempt);
    if (info.remote_stack.empty() && info.code == Code::task_failed)
      info.remote_stack = process::thrown_stack();
    return Error(std::move(info));
  }

  std::vector<detail::Value> arguments_of(const wire::Call& call, BlobView payload) const {
    LostArgument lost;
    try {
      return engine_.open_arguments(call, payload, lost);
    } catch (const Error& error) {
      ErrorInfo info = error.info();
      info.outcome = Outcome::not_executed;
      throw BadArgument{Error(std::move(info)), lost};
    }
  }

  const detail::Callable* lookup(const wire::FunctionKey& key) const {
    const detail::Callable* callable = process::Registry::instance().find(key);
    if (callable == nullptr)
      throw InvalidArgument(
          Code::invalid_argument,
          "this worker's program has no such entry: caller and worker run different builds");
    return callable;
  }

  void become(const ActorStart& order) {
    actor_ = order.start.actor;
    lifetime_ = order.start.lifetime;
    restarted_ = order.start.restarted;
    engine_.set_gpus({order.start.gpus.begin(), order.start.gpus.end()});
    const char* name = "constructor";
    const process::NoteThrows noting;
    try {
      class_ = lookup(order.start.creation.function);
      name = class_->name;
      Run run(engine_, arguments_of(order.start.creation, order.payload), nullptr, restarted_,
              std::make_shared<NoResult>());
      run.belongs_to(actor_, lifetime_);
      class_->thunk(run);
      instance_ = run.self();
      engine_.created(actor_, order.start.incarnation, nullptr);
    } catch (const BadArgument& bad) {
      const Error error = located(bad.error, name, 1);
      engine_.created(actor_, order.start.incarnation, &error);
    } catch (...) {
      const Error error = located(detail::error_from_current_exception(name), name, 1);
      engine_.created(actor_, order.start.incarnation, &error);
    }
  }

  void run(const Incoming& call) {
    const detail::Callable* callable = nullptr;
    std::shared_ptr<Replier> sink;
    const process::NoteThrows noting;
    try {
      callable = lookup(call.call.function);
      sink = std::make_shared<Replier>(engine_, call, callable->results);
      if (callable->kind == detail::CallableKind::method &&
          (instance_ == nullptr || call.call.actor_low != actor_.low))
        throw ActorDied(Code::actor_died, "the actor does not live in this process");
      Run run(engine_, arguments_of(call.call, call.payload), instance_, restarted_, sink);
      if (callable->kind == detail::CallableKind::method) run.belongs_to(actor_, lifetime_);
      callable->thunk(run);
      if (!run.deferred() && !sink->finished())
        sink->fail(Error(Code::internal, std::string(callable->name) + " ended without a result"));
    } catch (const BadArgument& bad) {
      sink->fail(located(bad.error, callable->name, call.call.attempt), bad.lost);
    } catch (...) {
      if (!sink) sink = std::make_shared<Replier>(engine_, call, 1);
      const char* name = callable != nullptr ? callable->name : "unknown function";
      sink->fail(located(detail::error_from_current_exception(name), name, call.call.attempt));
    }
  }

  ClientEngine& engine_;
  const detail::Callable* class_ = nullptr;
  void* instance_ = nullptr;
  ActorId actor_;
  ObjectId lifetime_;
  bool restarted_ = false;
};

}  // namespace

void run_worker(Fd socket, std::uint64_t token) {
  int code = 0;
  try {
    ClientEngine engine({std::move(socket), wire::ProcessKind::worker, token});
    Worker(engine).loop();
    engine.stop();
  } catch (const Unavailable&) {
    code = 1;  // the node went down meanwhile: whoever waits for this worker hears of it there
  } catch (const Error& error) {
    std::fprintf(stderr, "troupe: a worker could not start: %s\n", error.what());
    code = 1;
  }
  std::fflush(nullptr);
  _exit(code);  // static destructors belong to the driver
}

}  // namespace troupe::client

namespace troupe::detail {

Error error_from_current_exception(const char* function) noexcept {
  ErrorInfo info;
  info.code = Code::task_failed;
  info.outcome = Outcome::executed;
  info.origin.function = function;
  try {
    throw;
  } catch (const Error& error) {
    // Arguments that could not be opened, wrong builds: the call did not run. All else came out of
    // user code.
    if (error.outcome() == Outcome::not_executed && error.code() != Code::task_failed) {
      ErrorInfo same = error.info();
      if (same.origin.function.empty()) same.origin.function = function;
      return Error(std::move(same));
    }
    info.message = std::string(name_of(error.code())) + " inside: " + error.message();
    info.type = typeid(error).name();
    info.cause = error.shared_info();
  } catch (const std::exception& error) {
    info.message = error.what();
    info.type = typeid(error).name();
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    info.type = type != nullptr ? type->name() : "";
    info.message =
        "an exception of type " + (type != nullptr ? readable_type(type->name()) : "unknown");
  }
  return Error(std::move(info));
}

}  // namespace troupe::detail
