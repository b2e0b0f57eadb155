#include "troupe/runtime/client/session_engine.hpp"

#include "troupe/runtime/client/engine.hpp"

#include <utility>

namespace troupe::client {
namespace {

std::atomic<SessionEngine*> g_session{nullptr};

}  // namespace

/// One call inside the session's engine.
class SessionEngine::Inside {
 public:
  explicit Inside(SessionEngine& front) noexcept : visit_(front.visitors_), front_(front) {}
  explicit operator bool() const noexcept {
    return visit_ && !front_.over_.load(std::memory_order_relaxed);
  }
  detail::Engine* operator->() const {
    if (!*this) raise(over());
    return &front_.engine_;
  }

 private:
  const Visitors::Visit visit_;
  SessionEngine& front_;
};

/// A value that is being written. Its memory outlives the session, and its seal does not.
class SessionEngine::Building final : public detail::Building {
 public:
  Building(SessionEngine& front, std::unique_ptr<detail::Building> building)
      : front_(front), building_(std::move(building)) {}
  std::span<std::byte> bytes() override { return building_->bytes(); }
  detail::ObjectHandle seal(std::span<const detail::ObjectHandle> refs,
                            const detail::Replication& how) override {
    const Inside inside(front_);
    if (!inside) raise(over());
    return building_->seal(refs, how);
  }

 private:
  SessionEngine& front_;
  const std::unique_ptr<detail::Building> building_;
};

SessionEngine& SessionEngine::open(detail::Engine& engine) {
  auto* front = new SessionEngine(engine);
  g_session.store(front, std::memory_order_seq_cst);
  ClientEngine::gets_visits();
  // A Context may name it for as long as the process lives.
  static auto* const all = new std::vector<SessionEngine*>;  // keeps them reachable
  all->push_back(front);
  return *front;
}

SessionEngine* SessionEngine::current() noexcept {
  return g_session.load(std::memory_order_acquire);
}

void SessionEngine::close() noexcept {
  visitors_.close();
  g_session.store(nullptr, std::memory_order_seq_cst);
}

Error SessionEngine::over() {
  return Error(Code::unavailable, "the session is over", Outcome::not_executed);
}

void SessionEngine::submit(detail::Call&& call, const detail::Request* options,
                           std::span<detail::ObjectHandle> results) {
  Inside(*this)->submit(std::move(call), options, results);
}

detail::ActorHandle SessionEngine::spawn(detail::Call&& call, const detail::Request* options) {
  return Inside(*this)->spawn(std::move(call), options);
}

void SessionEngine::call(const detail::ActorHandle& actor, detail::Call&& call,
                         std::span<detail::ObjectHandle> results) {
  Inside(*this)->call(actor, std::move(call), results);
}

std::optional<detail::ActorHandle> SessionEngine::find(const std::string& name,
                                                       const char* class_name) {
  return Inside(*this)->find(name, class_name);
}

void SessionEngine::kill(const detail::ActorHandle& actor, bool may_restart) {
  Inside(*this)->kill(actor, may_restart);
}

detail::ObjectHandle SessionEngine::put(BlobView bytes,
                                        std::span<const detail::ObjectHandle> refs) {
  return Inside(*this)->put(bytes, refs);
}

std::unique_ptr<detail::Building> SessionEngine::create(std::size_t size, detail::CallSite at) {
  return std::make_unique<Building>(*this, Inside(*this)->create(size, at));
}

detail::Value SessionEngine::get(const detail::ObjectHandle& object, Duration timeout) {
  return Inside(*this)->get(object, timeout);
}

Result<detail::Value> SessionEngine::try_get(const detail::ObjectHandle& object, Duration timeout) {
  const Inside inside(*this);
  if (!inside) return over();
  return inside->try_get(object, timeout);
}

bool SessionEngine::is_ready(const detail::ObjectHandle& object) {
  const Inside inside(*this);
  return !inside || inside->is_ready(object);
}

std::vector<std::size_t> SessionEngine::wait(std::span<const detail::ObjectHandle> objects,
                                             std::size_t count, Duration timeout) {
  return Inside(*this)->wait(objects, count, timeout);
}

void SessionEngine::when_ready(const detail::ObjectHandle& object, std::function<void()> fire) {
  Inside(*this)->when_ready(object, std::move(fire));
}

void SessionEngine::post(std::function<void()> work) {
  const Inside inside(*this);
  if (inside) inside->post(std::move(work));
}

void SessionEngine::notify_when_ready(const detail::ObjectHandle& object,
                                      std::function<void()> told) {
  const Inside inside(*this);
  if (!inside) return told();
  inside->notify_when_ready(object, std::move(told));
}

Result<detail::Value> SessionEngine::peek(const detail::ObjectHandle& object) {
  const Inside inside(*this);
  if (!inside) return over();
  return inside->peek(object);
}

void SessionEngine::detach(const detail::ObjectHandle& object, const std::string& name,
                           std::uint64_t fingerprint, const char* type, Duration timeout) {
  Inside(*this)->detach(object, name, fingerprint, type, timeout);
}

detail::ObjectHandle SessionEngine::find_object(const std::string& name, std::uint64_t fingerprint,
                                                const char* type) {
  return Inside(*this)->find_object(name, fingerprint, type);
}

bool SessionEngine::forget_object(const std::string& name) {
  return Inside(*this)->forget_object(name);
}

std::vector<detail::ObjectLocation> SessionEngine::locations(
    std::span<const detail::ObjectHandle> objects) {
  return Inside(*this)->locations(objects);
}

detail::ActorHandle SessionEngine::adopt_actor(ActorId id, detail::ObjectHandle lifetime) {
  return Inside(*this)->adopt_actor(id, std::move(lifetime));
}

std::vector<detail::NodeInfo> SessionEngine::nodes() {
  return Inside(*this)->nodes();
}

std::vector<int> SessionEngine::gpu_ids() {
  return Inside(*this)->gpu_ids();
}

bool SessionEngine::stop_requested() {
  const Inside inside(*this);
  return !inside || inside->stop_requested();
}

void SessionEngine::on_log(detail::OnLog take) {
  Inside(*this)->on_log(std::move(take));
}

}  // namespace troupe::client
