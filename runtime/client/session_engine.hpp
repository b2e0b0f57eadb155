/// The engine as a driver's Contexts see it. It outlives the session, so that a Context of a thread
/// that goes on is as harmless as a Ref: its calls end in Unavailable("the session is over").
///
/// It passes each call on to the session's ClientEngine, and counts the threads inside. The end of
/// a session first refuses calls, then ends those that wait, and destroys the ClientEngine last:
///
///     SessionEngine& front = SessionEngine::open(engine);
///     front.refuse();  engine->finish(failed);  front.close();  engine.reset();
///
/// A worker needs none: its engine lives as long as its process.
#pragma once

#include "troupe/runtime/client/visitors.hpp"
#include "troupe/runtime/engine/engine.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::client {

class SessionEngine final : public detail::Engine {
 public:
  /// Makes the front of a session's engine. It is never destroyed: some hundred bytes per session.
  static SessionEngine& open(detail::Engine& engine);
  /// The front of the session of this process, or nullptr.
  static SessionEngine* current() noexcept;
  /// Refuses calls from here on. Those that have begun go on.
  void refuse() noexcept { over_.store(true, std::memory_order_relaxed); }
  /// Waits until no thread is inside. Precondition: the engine has ended all waits.
  void close() noexcept;
  using Visit = Visitors::Visit;
  /// Keeps the engine of this process's session alive while the result lives. For the release of
  /// handles.
  static Visit visit() noexcept {
    SessionEngine* front = current();
    return front != nullptr ? Visit(front->visitors_) : Visit();
  }

  void submit(detail::Call&& call, const detail::Request* options,
              std::span<detail::ObjectHandle> results) override;
  detail::ActorHandle spawn(detail::Call&& call, const detail::Request* options) override;
  void call(const detail::ActorHandle& actor, detail::Call&& call,
            std::span<detail::ObjectHandle> results) override;
  std::optional<detail::ActorHandle> find(const std::string& name, const char* class_name) override;
  void kill(const detail::ActorHandle& actor, bool may_restart) override;
  detail::ObjectHandle put(BlobView bytes, std::span<const detail::ObjectHandle> refs) override;
  std::unique_ptr<detail::Building> create(std::size_t size, detail::CallSite at) override;
  detail::Value get(const detail::ObjectHandle& object, Duration timeout) override;
  Result<detail::Value> try_get(const detail::ObjectHandle& object, Duration timeout) override;
  /// After the session: true, since no wait for it can end any more.
  bool is_ready(const detail::ObjectHandle& object) override;
  std::vector<std::size_t> wait(std::span<const detail::ObjectHandle> objects, std::size_t count,
                                Duration timeout) override;
  void when_ready(const detail::ObjectHandle& object, std::function<void()> fire) override;
  void post(std::function<void()> work) override;
  void notify_when_ready(const detail::ObjectHandle& object, std::function<void()> told) override;
  Result<detail::Value> peek(const detail::ObjectHandle& object) override;
  void detach(const detail::ObjectHandle& object, const std::string& name,
              std::uint64_t fingerprint, const char* type, Duration timeout) override;
  detail::ObjectHandle find_object(const std::string& name, std::uint64_t fingerprint,
                                   const char* type) override;
  bool forget_object(const std::string& name) override;
  std::vector<detail::ObjectLocation> locations(
      std::span<const detail::ObjectHandle> objects) override;
  detail::ActorHandle adopt_actor(ActorId id, detail::ObjectHandle lifetime) override;
  std::vector<detail::NodeInfo> nodes() override;
  NodeId node() override { return node_; }
  std::vector<int> gpu_ids() override;
  bool stop_requested() override;
  void on_log(detail::OnLog take) override;

 private:
  class Inside;
  class Building;
  explicit SessionEngine(detail::Engine& engine) : engine_(engine), node_(engine.node()) {}
  static Error over();

  Visitors visitors_;
  std::atomic<bool> over_{false};
  detail::Engine& engine_;  ///< only inside a visit
  const NodeId node_;
};

}  // namespace troupe::client
