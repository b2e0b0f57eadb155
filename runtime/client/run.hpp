/// One run of a thunk in this process: the arguments that it sees, and the sink of its results.
///
///     Arguments arguments;                               // its values, filled in
///     Run run(engine, arguments, nullptr, false, sink);  // the views of them
///     callable.thunk(run);
#pragma once

#include "troupe/runtime/client/engine.hpp"

#include <unistd.h>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

namespace troupe::client {

/// The values of one call's arguments, and the thunk's views of them. Reused from call to call,
/// to save allocations.
struct Arguments {
  std::vector<detail::Value> values;
  std::vector<detail::ArgumentView> views;
  void clear() noexcept {
    views.clear();
    values.clear();
  }
};

/// Ends a child process that user code forked and that came back out of user code. It ends as if
/// it had called exit(): the call, and all that follows, belong to the parent.
[[noreturn, gnu::cold, gnu::noinline]] inline void end_fork(int code) {
  std::fflush(nullptr);
  _exit(code);
}
inline void end_if_fork(const ClientEngine& engine, int code) {
  if (engine.in_fork()) [[unlikely]]
    end_fork(code);
}

/// One run of a task or method. It keeps references: engine, arguments and `sink` outlive it. Its
/// destructor clears the arguments. `self`: the actor's instance; null for a task.
class Run final : public detail::Invocation {
 public:
  Run(ClientEngine& engine, Arguments& arguments, void* self, bool restarted,
      const std::shared_ptr<detail::ResultSink>& sink)
      : engine_(engine), arguments_(arguments), self_(self), restarted_(restarted), sink_(sink) {
    for (const auto& value : arguments_.values)
      arguments_.views.push_back({value.bytes, value.refs, &value.keep});
  }
  ~Run() override { arguments_.clear(); }
  std::span<const detail::ArgumentView> arguments() const override { return arguments_.views; }
  detail::Engine& engine() const override { return engine_; }
  void* self() const override { return self_; }
  void set_self(void* instance) override { self_ = instance; }
  std::shared_ptr<detail::ResultSink> defer() override {
    deferred_ = true;
    return engine_.waits().suspended_runs().count(sink_);
  }
  bool restarted() const override { return restarted_; }
  detail::ActorHandle actor() const override {
    return actor_ ? engine_.self(actor_, lifetime_) : detail::ActorHandle{};
  }
  /// Sets the actor that runs this method.
  void belongs_to(ActorId actor, ObjectId lifetime) noexcept {
    actor_ = actor;
    lifetime_ = lifetime;
  }
  bool deferred() const noexcept { return deferred_; }

  std::span<std::byte> allocate(std::size_t i, std::size_t n) override {
    end_if_fork(engine_, 0);
    return sink_->allocate(i, n);
  }
  /// Not in a fork: allocate() has checked that.
  void publish(std::size_t i, std::span<const detail::ObjectHandle> refs) override {
    sink_->publish(i, refs);
  }
  void forward(std::size_t i, const detail::ObjectHandle& object) override {
    end_if_fork(engine_, 0);
    sink_->forward(i, object);
  }
  void fail(const Error& error) override { sink_->fail(error); }

 private:
  ClientEngine& engine_;
  Arguments& arguments_;
  void* self_;
  bool restarted_;
  bool deferred_ = false;
  ActorId actor_;
  ObjectId lifetime_;
  const std::shared_ptr<detail::ResultSink>& sink_;
};

}  // namespace troupe::client
