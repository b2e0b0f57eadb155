#include "tests/runtime/front/inline_engine.hpp"

#include <algorithm>

namespace troupe::testing {

using detail::ObjectHandle;

struct InlineEngine::Object final : detail::ObjectEntry {
  bool ready = false;
  std::uint64_t completed = 0;
  Aligned bytes;
  std::size_t size = 0;
  std::vector<ObjectHandle> refs;
  std::optional<Error> error;
  ObjectHandle source;
  std::vector<std::function<void()>> waiters;
};

namespace {
InlineEngine* running = nullptr;
InlineEngine::Object& object_of(const ObjectHandle& handle) {
  return static_cast<InlineEngine::Object&>(*handle.entry());
}
std::vector<const detail::Callable*>& registry() {
  static std::vector<const detail::Callable*> table;
  return table;
}
}  // namespace

struct InlineEngine::Job {
  const detail::Callable* callable = nullptr;
  Aligned bytes;
  std::vector<detail::Argument> arguments;
  std::vector<ObjectHandle> refs;
  std::vector<ObjectHandle> results;
  bool is_tell = false;
};

struct InlineEngine::Room {
  detail::ActorHandle handle;
  std::string name;
  const char* class_name = "";
  void (*destroy)(void*) = nullptr;
  void* self = nullptr;
  std::optional<Error> dead;
  std::deque<Job> queue;
  ~Room() {
    if (self != nullptr) destroy(self);
  }
};

class InlineEngine::Sink : public detail::ResultSink {
 public:
  Sink(InlineEngine& engine, std::vector<ObjectHandle> results, bool is_tell)
      : engine_(engine),
        results_(std::move(results)),
        buffers_(results_.size()),
        is_tell_(is_tell) {}
  std::span<std::byte> allocate(std::size_t index, std::size_t size) override {
    buffers_.resize(std::max(buffers_.size(), index + 1));
    buffers_[index] = {InlineEngine::allocate(size), size};
    return {buffers_[index].first.get(), size};
  }
  void publish(std::size_t index, std::span<const ObjectHandle> refs) override {
    if (index >= results_.size()) return;
    engine_.complete(results_[index], buffers_.at(index).first, buffers_.at(index).second,
                     {refs.begin(), refs.end()});
  }
  void forward(std::size_t index, const ObjectHandle& object) override {
    if (index < results_.size()) engine_.forward(results_[index], object);
  }
  void fail(const Error& error) override {
    if (is_tell_) ++engine_.tells_failed_;
    for (const ObjectHandle& result : results_)
      if (!object_of(result).ready) engine_.fail(result, error);
  }

 private:
  InlineEngine& engine_;
  std::vector<ObjectHandle> results_;
  std::vector<std::pair<Aligned, std::size_t>> buffers_;
  bool is_tell_;
};

class InlineEngine::Run final : public detail::Invocation {
 public:
  Run(InlineEngine& engine, Job& job, Room* room)
      : engine_(engine),
        room_(room),
        sink_(std::make_shared<Sink>(engine, job.results, job.is_tell)) {
    keeps_.reserve(job.arguments.size());
    for (const detail::Argument& argument : job.arguments) {
      if (argument.object) {
        const Result<detail::Value> value = engine.peek(argument.object);
        keeps_.push_back(value->keep);
        views_.push_back({value->bytes, value->refs, &keeps_.back()});
      } else {
        keeps_.push_back(job.bytes);
        views_.push_back({{job.bytes.get() + argument.offset, argument.size},
                          std::span(job.refs).subspan(argument.first_ref, argument.ref_count),
                          &keeps_.back()});
      }
    }
  }
  std::span<const detail::ArgumentView> arguments() const override { return views_; }
  detail::Engine& engine() const override { return engine_; }
  void* self() const override { return room_ != nullptr ? room_->self : nullptr; }
  void set_self(void* instance) override { room_->self = instance; }
  std::shared_ptr<detail::ResultSink> defer() override { return sink_; }
  bool restarted() const override { return false; }
  detail::ActorHandle actor() const override {
    return room_ != nullptr ? room_->handle : detail::ActorHandle{};
  }
  std::span<std::byte> allocate(std::size_t i, std::size_t n) override {
    return sink_->allocate(i, n);
  }
  void publish(std::size_t i, std::span<const ObjectHandle> refs) override {
    sink_->publish(i, refs);
  }
  void forward(std::size_t i, const ObjectHandle& object) override { sink_->forward(i, object); }
  void fail(const Error& error) override { sink_->fail(error); }

 private:
  InlineEngine& engine_;
  Room* room_;
  std::shared_ptr<Sink> sink_;
  std::vector<std::shared_ptr<const void>> keeps_;
  std::vector<detail::ArgumentView> views_;
};

InlineEngine::InlineEngine() {
  running = this;
}

InlineEngine::~InlineEngine() {
  names_.clear();
  // Destroys coroutines that will never be resumed, before the objects to which they refer.
  std::vector<std::function<void()>> dropped(fires_.begin(), fires_.end());
  fires_.clear();
  for (Object* object : objects_) {
    dropped.insert(dropped.end(), object->waiters.begin(), object->waiters.end());
    object->waiters.clear();
  }
  dropped.clear();
  tasks_.clear();
  for (auto& [id, room] : rooms_) room->queue.clear();
  rooms_.clear();
  running = nullptr;
}

InlineEngine::Aligned InlineEngine::allocate(std::size_t size) {
  return {static_cast<std::byte*>(::operator new(size, std::align_val_t(64))),
          [](std::byte* p) { ::operator delete(p, std::align_val_t(64)); }};
}

ObjectHandle InlineEngine::make_pending() {
  auto* object = new Object;
  object->id = ObjectId{7, static_cast<std::uint64_t>(++next_actor_)};
  objects_.insert(object);
  return ObjectHandle::adopt(object);
}

void InlineEngine::forget(Object* object) noexcept {
  objects_.erase(object);
  delete object;
}

void InlineEngine::become_ready(Object& object) {
  object.ready = true;
  object.completed = ++completions_;
  for (auto& waiter : object.waiters) fires_.push_back(std::move(waiter));
  object.waiters.clear();
}

void InlineEngine::complete(const ObjectHandle& handle, Aligned bytes, std::size_t size,
                            std::vector<ObjectHandle> refs) {
  Object& object = object_of(handle);
  TROUPE_ASSERT(!object.ready, "a result is published once");
  object.bytes = std::move(bytes);
  object.size = size;
  object.refs = std::move(refs);
  become_ready(object);
}

void InlineEngine::fail(const ObjectHandle& handle, const Error& error) {
  Object& object = object_of(handle);
  object.error = error;
  become_ready(object);
}

void InlineEngine::forward(const ObjectHandle& handle, const ObjectHandle& source) {
  object_of(handle).source = source;
  when_ready(source, [this, handle] {
    Object& object = object_of(handle);
    const ObjectHandle from = std::move(object.source);
    const Object& origin = object_of(from);
    if (origin.error)
      fail(handle, *origin.error);
    else
      complete(handle, origin.bytes, origin.size, origin.refs);
  });
}

InlineEngine::Job InlineEngine::make_job(detail::Call&& call, std::span<ObjectHandle> results) {
  Job job;
  job.callable = nullptr;  // the thunk finds it again, as in another process
  for (const detail::Callable* known : registry())
    if (known->thunk == call.callable->thunk) job.callable = known;
  TROUPE_ASSERT(job.callable != nullptr, "entries register before main");
  TROUPE_ASSERT(call.bytes.size() <= detail::kInlineBytes, "large arguments are objects");
  job.bytes = allocate(call.bytes.size());
  std::copy(call.bytes.begin(), call.bytes.end(), job.bytes.get());
  job.arguments.assign(call.arguments.begin(), call.arguments.end());
  job.refs = std::move(call.refs);
  job.is_tell = results.empty();
  for (ObjectHandle& result : results) {
    result = make_pending();
    job.results.push_back(result);
  }
  last_callable_ = job.callable;
  last_name_ = job.callable->name;
  last_inline_bytes_ = call.bytes.size();
  return job;
}

void InlineEngine::submit(detail::Call&& call, const detail::Request* options,
                          std::span<ObjectHandle> results) {
  last_request_ = options != nullptr ? *options : detail::Request{};
  TROUPE_ASSERT(results.size() == call.callable->results, "as many results as the callable has");
  tasks_.push_back(make_job(std::move(call), results));
}

detail::ActorHandle InlineEngine::spawn(detail::Call&& call, const detail::Request* options) {
  last_request_ = options != nullptr ? *options : detail::Request{};
  if (last_request_.get_if_exists)
    if (auto found = find(last_request_.name, call.callable->class_name)) return *found;
  auto room = std::make_unique<Room>();
  room->handle = {ActorId{9, ++next_actor_}, make_pending()};
  room->name = last_request_.name;
  room->class_name = call.callable->class_name;
  room->destroy = call.callable->destroy;
  room->queue.push_back(make_job(std::move(call), {}));
  const detail::ActorHandle handle = room->handle;
  rooms_.emplace(handle.id, std::move(room));
  return handle;
}

void InlineEngine::call(const detail::ActorHandle& actor, detail::Call&& call,
                        std::span<ObjectHandle> results) {
  rooms_.at(actor.id)->queue.push_back(make_job(std::move(call), results));
}

std::optional<detail::ActorHandle> InlineEngine::find(const std::string& name,
                                                      const char* class_name) {
  for (const auto& [id, room] : rooms_)
    if (room->name == name && std::string_view(room->class_name) == class_name) return room->handle;
  return std::nullopt;
}

void InlineEngine::kill(const detail::ActorHandle& actor, bool) {
  rooms_.at(actor.id)->dead = Error(Code::actor_died, "killed", Outcome::not_executed);
}

bool InlineEngine::arguments_ready(const Job& job) {
  for (const detail::Argument& argument : job.arguments)
    if (argument.object && !is_ready(argument.object)) return false;
  return true;
}

void InlineEngine::run(Job job, Room* room) {
  Sink errors(*this, job.results, job.is_tell);
  if (room != nullptr && room->dead) return errors.fail(*room->dead);
  for (const detail::Argument& argument : job.arguments)
    if (argument.object && object_of(argument.object).error)
      return errors.fail(*object_of(argument.object).error);
  Run invocation(*this, job, room);
  const std::optional<Error> error = detail::run_thunk(*job.callable, invocation);
  if (!error) return;
  if (job.callable->kind == detail::CallableKind::constructor)
    room->dead = Error(Code::actor_died, error->message(), Outcome::not_executed);
  else
    errors.fail(*error);
}

bool InlineEngine::step() {
  if (!fires_.empty()) {
    const std::function<void()> fire = std::move(fires_.front());
    fires_.pop_front();
    fire();
    return true;
  }
  for (auto& [id, room] : rooms_) {
    if (room->queue.empty() || !arguments_ready(room->queue.front())) continue;
    Job job = std::move(room->queue.front());
    room->queue.pop_front();
    run(std::move(job), room.get());
    return true;
  }
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (!arguments_ready(tasks_[i])) continue;
    Job job = std::move(tasks_[i]);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(i));
    run(std::move(job), nullptr);
    return true;
  }
  return false;
}

void InlineEngine::drain() {
  while (step()) {
  }
}

bool InlineEngine::pump_until(const ObjectHandle& object) {
  while (!object_of(object).ready)
    if (!step()) return false;
  return true;
}

ObjectHandle InlineEngine::put(BlobView bytes, std::span<const ObjectHandle> refs) {
  ObjectHandle object = make_pending();
  Aligned copy = allocate(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  complete(object, std::move(copy), bytes.size(), {refs.begin(), refs.end()});
  return object;
}

std::unique_ptr<detail::Building> InlineEngine::create(std::size_t size, detail::CallSite) {
  struct Place final : detail::Building {
    InlineEngine& engine;
    Aligned memory;
    std::size_t size;
    Place(InlineEngine& e, std::size_t n) : engine(e), memory(allocate(n)), size(n) {}
    std::span<std::byte> bytes() override { return {memory.get(), size}; }
    ObjectHandle seal(std::span<const ObjectHandle> refs, const detail::Replication&) override {
      ObjectHandle object = engine.make_pending();
      engine.complete(object, memory, size, {refs.begin(), refs.end()});
      return object;
    }
  };
  ++creates_;
  return std::make_unique<Place>(*this, size);
}

void InlineEngine::detach(const ObjectHandle& object, const std::string& name,
                          std::uint64_t fingerprint, const char* type, Duration timeout) {
  (void)get(object, timeout);
  const auto [at, fresh] = names_.try_emplace(name, Named{object, fingerprint, type});
  if (!fresh && !(at->second.object == object))
    throw InvalidArgument(Code::invalid_argument, "an object named '" + name + "' exists already");
}

ObjectHandle InlineEngine::find_object(const std::string& name, std::uint64_t fingerprint,
                                       const char* type) {
  const auto at = names_.find(name);
  if (at == names_.end()) return {};
  if (at->second.fingerprint != fingerprint)
    throw InvalidArgument(Code::invalid_argument, "it is a " + at->second.type + ", not a " + type);
  return at->second.object;
}

std::vector<detail::ObjectLocation> InlineEngine::locations(std::span<const ObjectHandle> objects) {
  using State = detail::ObjectLocation::State;
  std::vector<detail::ObjectLocation> answer;
  for (const ObjectHandle& handle : objects) {
    const Object& object = object_of(handle);
    const State state = !object.ready  ? State::pending
                        : object.error ? State::failed
                                       : State::large;
    answer.push_back({state, Bytes{object.size}, false, {node()}});
  }
  return answer;
}

Result<detail::Value> InlineEngine::peek(const ObjectHandle& handle) {
  const Object& object = object_of(handle);
  TROUPE_ASSERT(object.ready, "peek looks at what is ready");
  if (object.error) return *object.error;
  // The value outlives the object, so it gets a keeper of its own.
  struct Keeper {
    Aligned bytes;
    std::vector<ObjectHandle> refs;
  };
  auto keeper = std::make_shared<Keeper>(Keeper{object.bytes, object.refs});
  return detail::Value{{object.bytes.get(), object.size}, keeper->refs, keeper};
}

Result<detail::Value> InlineEngine::try_get(const ObjectHandle& object, Duration timeout) {
  if (!pump_until(object)) {
    TROUPE_ASSERT(timeout != detail::kNoTimeout, "a get that can never end");
    return TimedOut(Code::timed_out, "not ready in time", Outcome::unknown);
  }
  return peek(object);
}

detail::Value InlineEngine::get(const ObjectHandle& object, Duration timeout) {
  Result<detail::Value> value = try_get(object, timeout);
  if (!value) raise(value.error());
  return *value;
}

bool InlineEngine::is_ready(const ObjectHandle& object) {
  return object_of(object).ready;
}

std::vector<std::size_t> InlineEngine::wait(std::span<const ObjectHandle> objects,
                                            std::size_t count, Duration timeout) {
  std::vector<std::size_t> ready;
  do {
    ready.clear();
    for (std::size_t i = 0; i < objects.size(); ++i)
      if (object_of(objects[i]).ready) ready.push_back(i);
  } while (ready.size() < count && timeout != Duration::zero() && step());
  std::stable_sort(ready.begin(), ready.end(), [&](std::size_t a, std::size_t b) {
    return object_of(objects[a]).completed < object_of(objects[b]).completed;
  });
  if (ready.size() > count) ready.resize(count);
  return ready;
}

void InlineEngine::when_ready(const ObjectHandle& object, std::function<void()> fire) {
  if (object_of(object).ready)
    fire();
  else
    object_of(object).waiters.push_back(std::move(fire));
}

detail::ActorHandle InlineEngine::adopt_actor(ActorId id, ObjectHandle lifetime) {
  return {id, std::move(lifetime)};
}

std::vector<detail::NodeInfo> InlineEngine::nodes() {
  detail::NodeInfo node;
  node.id = {1, 1};
  node.name = "inline";
  node.cpus = 1;
  return {node};
}

}  // namespace troupe::testing

// The functions of the seam, as the runtime would define them.
namespace troupe::detail {

namespace {

Engine* current_engine() noexcept {
  return testing::running;
}

void release(ObjectEntry* entry) noexcept {
  auto* object = static_cast<testing::InlineEngine::Object*>(entry);
  if (testing::running != nullptr)
    testing::running->forget(object);
  else
    delete object;
}

constexpr EngineHooks kHooks{.current = &current_engine, .release = &release};
[[maybe_unused]] const bool g_installed = (install(&kHooks), true);

}  // namespace

void register_callable(const Callable* callable) {
  testing::registry().push_back(callable);
}

}  // namespace troupe::detail
