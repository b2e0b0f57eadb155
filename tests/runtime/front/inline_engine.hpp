/// An engine in one process for tests of the API. It encodes, copies, decodes and runs every call
/// on the waiting thread, and encodes the result. Nothing is parallel, so a wait that cannot end
/// is found at once.
#pragma once

#include "troupe/runtime/context.hpp"

#include <deque>
#include <map>
#include <set>

namespace troupe::testing {

class InlineEngine final : public detail::Engine {
 public:
  InlineEngine();
  ~InlineEngine() override;
  InlineEngine(const InlineEngine&) = delete;
  InlineEngine& operator=(const InlineEngine&) = delete;

  Context context() { return Context(*this); }
  /// Runs calls until none can run.
  void drain();
  /// Returns a Ref that becomes ready when the test decides so.
  template <class T>
  Ref<T> promise() {
    return detail::Access::make_ref<Ref<T>>(make_pending());
  }
  template <class T>
  void keep_promise(const Ref<T>& ref, const T& value) {
    std::vector<detail::ObjectHandle> handles;
    const Aligned bytes = allocate(detail::measure(value).size());
    detail::encode_into({bytes.get(), detail::measure(value).size()}, handles, value);
    complete(detail::Access::handle(ref), bytes, detail::measure(value).size(), handles);
  }
  template <class T>
  void break_promise(const Ref<T>& ref, const Error& error) {
    fail(detail::Access::handle(ref), error);
  }
  int live_objects() const { return static_cast<int>(objects_.size()); }
  const detail::Request& last_request() const { return last_request_; }
  const std::string& last_name() const { return last_name_; }
  const detail::Callable* last_callable() const { return last_callable_; }
  std::size_t last_inline_bytes() const { return last_inline_bytes_; }
  int tells_failed() const { return tells_failed_; }
  int large_creates() const { return creates_; }

  void submit(detail::Call&& call, const detail::Request* options,
              std::span<detail::ObjectHandle> results) override;
  detail::ActorHandle spawn(detail::Call&& call, const detail::Request* options) override;
  void call(const detail::ActorHandle& actor, detail::Call&& call,
            std::span<detail::ObjectHandle> results) override;
  std::optional<detail::ActorHandle> find(const std::string& name, const char* class_name) override;
  void kill(const detail::ActorHandle& actor, bool may_restart) override;
  detail::ObjectHandle put(BlobView bytes, std::span<const detail::ObjectHandle> refs) override;
  std::unique_ptr<detail::Building> create(std::size_t size, detail::CallSite) override;
  detail::Value get(const detail::ObjectHandle& object, Duration timeout) override;
  Result<detail::Value> try_get(const detail::ObjectHandle& object, Duration timeout) override;
  bool is_ready(const detail::ObjectHandle& object) override;
  std::vector<std::size_t> wait(std::span<const detail::ObjectHandle> objects, std::size_t count,
                                Duration timeout) override;
  void when_ready(const detail::ObjectHandle& object, std::function<void()> fire) override;
  void post(std::function<void()> work) override { fires_.push_back(std::move(work)); }
  void notify_when_ready(const detail::ObjectHandle& object, std::function<void()> told) override {
    when_ready(object, std::move(told));
  }
  Result<detail::Value> peek(const detail::ObjectHandle& object) override;
  void detach(const detail::ObjectHandle& object, const std::string& name,
              std::uint64_t fingerprint, const char* type, Duration timeout) override;
  detail::ObjectHandle find_object(const std::string& name, std::uint64_t fingerprint,
                                   const char* type) override;
  bool forget_object(const std::string& name) override { return names_.erase(name) != 0; }
  std::vector<detail::ObjectLocation> locations(
      std::span<const detail::ObjectHandle> objects) override;
  detail::ActorHandle adopt_actor(ActorId id, detail::ObjectHandle lifetime) override;
  std::vector<detail::NodeInfo> nodes() override;
  NodeId node() override { return {1, 1}; }
  std::vector<int> gpu_ids() override { return {0, 3}; }
  bool stop_requested() override { return false; }

  using Aligned = std::shared_ptr<std::byte>;
  static Aligned allocate(std::size_t size);
  struct Object;
  struct Job;
  struct Room;
  class Run;
  class Sink;

  detail::ObjectHandle make_pending();
  void complete(const detail::ObjectHandle& object, Aligned bytes, std::size_t size,
                std::vector<detail::ObjectHandle> refs);
  void fail(const detail::ObjectHandle& object, const Error& error);
  void forward(const detail::ObjectHandle& object, const detail::ObjectHandle& source);
  void forget(Object* object) noexcept;

 private:
  void become_ready(Object& object);
  Job make_job(detail::Call&& call, std::span<detail::ObjectHandle> results);
  bool step();
  bool arguments_ready(const Job& job);
  void run(Job job, Room* room);
  bool pump_until(const detail::ObjectHandle& object);

  struct Named {
    detail::ObjectHandle object;
    std::uint64_t fingerprint = 0;
    std::string type;
  };
  std::map<std::string, Named> names_;
  std::deque<std::function<void()>> fires_;
  std::deque<Job> tasks_;
  std::map<ActorId, std::unique_ptr<Room>> rooms_;
  std::uint64_t completions_ = 0;
  std::uint64_t next_actor_ = 0;
  std::set<Object*> objects_;
  int tells_failed_ = 0;
  int creates_ = 0;
  detail::Request last_request_;
  std::string last_name_;
  const detail::Callable* last_callable_ = nullptr;
  std::size_t last_inline_bytes_ = 0;
};

}  // namespace troupe::testing
