// A library in NCCL's place for tests. Its ranks are threads of one process, and its streams are
// queues of a HostDevice. It is as asynchronous as NCCL in non-blocking mode: a call returns
// ncclInProgress, and its operation is on the stream once ncclCommGetAsyncError returns success.
// Reductions add the ranks in descending order and round 16-bit numbers at each step.
#include "tests/device/fake_nccl.hpp"
#include "tests/device/fake_stream.hpp"
#include "troupe/kernels/half/half.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 4, kInProgress = 7;
enum Kind { reduce_all, scatter, gather, broadcast_one, send_one, receive_one };

struct Call {
  Kind kind = reduce_all;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0, operation = 0;
  int peer = 0;  // or root
  FakeStream* stream = nullptr;
};

struct State {
  std::atomic<unsigned> held{0};
  std::atomic<int> failing{-1}, failure{0};
  std::atomic<bool> sticks{false};
  std::atomic<int> alive{0}, aborted{0}, destroyed{0}, operations{0}, violations{0};
} state;

struct Member;

/// A send or receive that waits for its counterpart.
struct Post {
  Call call;
  Member* by = nullptr;
  bool done = false;
};

/// All ranks of a communicator.
struct Group {
  explicit Group(int ranks) : size(ranks) {}
  struct Meeting {
    std::map<int, Call> calls;
    std::map<int, std::pair<int, int>> requests;  // color and key of each rank in a split
    std::map<int, std::pair<std::shared_ptr<Group>, int>> places;
    bool done = false;
  };
  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  bool broken = false;  // a rank has aborted: no operation ends any more
  std::map<std::uint64_t, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Post>>> sends, receives;
};

/// A rank's membership, shared by its handle and by the operations that its streams still hold.
struct Member {
  std::shared_ptr<Group> group;
  int rank = 0;
  std::atomic<int> result{kInProgress};
  std::atomic<bool> aborted{false};
  std::atomic<int> inside{0};
  std::uint64_t sequence = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  bool stopping = false;
};

void* reach(const Call& call, const void* memory) {
  void* there = const_cast<void*>(memory);
  return call.stream == nullptr ? there : call.stream->reach(call.stream, there);
}

std::size_t size_of(int type) {
  switch (type) {
    case 0:
    case 1: return 1;
    case 6:
    case 9: return 2;
    case 2:
    case 3:
    case 7: return 4;
    default: return 8;
  }
}

template <class T, class Load, class Store>
void reduce(const std::vector<const T*>& parts, T* out, std::size_t count, int operation,
            const Load& load, const Store& store) {
  using V = decltype(load(T{}));
  for (std::size_t i = 0; i < count; ++i) {
    V total{};
    for (std::size_t k = 0; k < parts.size(); ++k) {  // the last rank first
      T raw;
      std::memcpy(&raw, parts[parts.size() - 1 - k] + i, sizeof raw);
      V one = load(raw);
      if constexpr (std::is_floating_point_v<V>)
        if (operation == 4) one *= V(1) / static_cast<V>(parts.size());
      if (k == 0)
        total = one;
      else if (operation == 2)
        total = std::is_floating_point_v<V> ? static_cast<V>(std::fmax(total, one))
                                            : (total > one ? total : one);
      else if (operation == 3)
        total = std::is_floating_point_v<V> ? static_cast<V>(std::fmin(total, one))
                                            : (total < one ? total : one);
      else if constexpr (std::is_floating_point_v<V>)
        total += one;
      else
        total = static_cast<V>(static_cast<std::make_unsigned_t<V>>(total) +
                               static_cast<std::make_unsigned_t<V>>(one));
      total = load(store(total));
    }
    const T made = store(total);
    std::memcpy(out + i, &made, sizeof made);
  }
}

template <class T>
void reduce_plain(const std::vector<const void*>& parts, void* out, std::size_t count,
                  int operation) {
  std::vector<const T*> typed;
  for (const void* part : parts) typed.push_back(static_cast<const T*>(part));
  const auto same = [](T x) { return x; };
  reduce<T>(typed, static_cast<T*>(out), count, operation, same, same);
}

template <class Load, class Store>
void reduce_half(const std::vector<const void*>& parts, void* out, std::size_t count, int operation,
                 const Load& load, const Store& store) {
  std::vector<const std::uint16_t*> typed;
  for (const void* part : parts) typed.push_back(static_cast<const std::uint16_t*>(part));
  reduce<std::uint16_t>(typed, static_cast<std::uint16_t*>(out), count, operation, load, store);
}

void reduce_any(int type, const std::vector<const void*>& parts, void* out, std::size_t count,
                int operation) {
  namespace k = troupe::kernels;
  switch (type) {
    case 1: return reduce_plain<std::uint8_t>(parts, out, count, operation);
    case 2: return reduce_plain<std::int32_t>(parts, out, count, operation);
    case 4: return reduce_plain<std::int64_t>(parts, out, count, operation);
    case 7: return reduce_plain<float>(parts, out, count, operation);
    case 8: return reduce_plain<double>(parts, out, count, operation);
    case 6: return reduce_half(parts, out, count, operation, k::from_f16, k::to_f16);
    case 9: return reduce_half(parts, out, count, operation, k::from_bf16, k::to_bf16);
    default: return;
  }
}

/// Carries out the whole operation, for all ranks at once.
void carry_out(const std::map<int, Call>& calls) {
  const Call& first = calls.begin()->second;
  const std::size_t bytes = first.count * size_of(first.type), ranks = calls.size();
  if (first.kind == broadcast_one) {
    const Call& root = calls.at(first.peer);
    const std::string data(static_cast<const char*>(reach(root, root.in)), bytes);
    for (const auto& [rank, call] : calls) std::memcpy(reach(call, call.out), data.data(), bytes);
    return;
  }
  if (first.kind == gather) {
    std::string data;
    for (const auto& [rank, call] : calls)
      data.append(static_cast<const char*>(reach(call, call.in)), bytes);
    for (const auto& [rank, call] : calls)
      std::memcpy(reach(call, call.out), data.data(), data.size());
    return;
  }
  const std::size_t parts = first.kind == scatter ? ranks : 1;
  std::string made(bytes * parts, '\0');
  std::vector<const void*> inputs;
  for (const auto& [rank, call] : calls) inputs.push_back(reach(call, call.in));
  reduce_any(first.type, inputs, made.data(), first.count * parts, first.operation);
  for (const auto& [rank, call] : calls)
    std::memcpy(reach(call, call.out),
                made.data() + (first.kind == scatter ? static_cast<std::size_t>(rank) * bytes : 0),
                bytes);
}

void await(const std::shared_ptr<Member>& me, std::unique_lock<std::mutex>& lock,
           const std::function<bool()>& done) {
  me->group->changed.wait(lock, [&] { return me->aborted || done(); });
}

void run_collective(const std::shared_ptr<Member>& me, const Call& call, std::uint64_t sequence) {
  Group& group = *me->group;
  std::unique_lock lock(group.mutex);
  Group::Meeting& meeting = group.meetings[sequence];
  meeting.calls[me->rank] = call;
  if (static_cast<int>(meeting.calls.size()) == group.size && !group.broken) {
    carry_out(meeting.calls);
    meeting.done = true;
    group.changed.notify_all();
  }
  await(me, lock, [&] { return meeting.done; });
}

void match(Group& group, const std::pair<int, int>& pair) {
  auto& sends = group.sends[pair];
  auto& receives = group.receives[pair];
  while (!group.broken && !sends.empty() && !receives.empty()) {
    Post& from = *sends.front();
    Post& to = *receives.front();
    std::memmove(reach(to.call, to.call.out), reach(from.call, from.call.in),
                 to.call.count * size_of(to.call.type));
    from.done = to.done = true;
    sends.pop_front();
    receives.pop_front();
  }
  group.changed.notify_all();
}

void run_transfers(const std::shared_ptr<Member>& me, const std::vector<Call>& calls) {
  Group& group = *me->group;
  std::unique_lock lock(group.mutex);
  std::vector<std::shared_ptr<Post>> mine;
  for (const Call& call : calls) {
    mine.push_back(std::make_shared<Post>(Post{call, me.get()}));
    const bool sends = call.kind == send_one;
    const std::pair pair(sends ? me->rank : call.peer, sends ? call.peer : me->rank);
    (sends ? group.sends : group.receives)[pair].push_back(mine.back());
    match(group, pair);
  }
  await(me, lock, [&] {
    for (const auto& post : mine)
      if (!post->done) return false;
    return true;
  });
}

/// Runs as an element of the stream's queue.
void run_calls(const std::shared_ptr<Member>& me, const std::vector<Call>& calls,
               std::uint64_t sequence) {
  while ((state.held & (1u << me->rank)) != 0 && !me->aborted)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (calls.front().kind >= send_one)
    run_transfers(me, calls);
  else
    run_collective(me, calls.front(), sequence);
}

void start(const std::shared_ptr<Member>& me, std::function<void()> job) {
  {
    const std::lock_guard lock(me->mutex);
    me->jobs.push_back(std::move(job));
  }
  me->changed.notify_all();
}

/// Plays NCCL's own threads: does one item of work after the other.
void work(const std::shared_ptr<Member>& me) {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(me->mutex);
      me->changed.wait(lock, [&] { return me->stopping || !me->jobs.empty(); });
      if (me->jobs.empty()) return;
      job = std::move(me->jobs.front());
      me->jobs.pop_front();
    }
    job();
  }
}

struct Ids {
  std::mutex mutex;
  std::uint64_t last = 0;
  std::map<std::uint64_t, std::shared_ptr<Group>> groups;
} ids;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): names of NCCL
struct ncclComm {
  std::shared_ptr<Member> member;
  std::thread thread;
};

namespace {

class Inside {
 public:
  explicit Inside(ncclComm* comm) : member_(comm->member) {
    if (member_->inside.fetch_add(1) != 0) ++state.violations;
  }
  ~Inside() { member_->inside.fetch_sub(1); }

 private:
  std::shared_ptr<Member> member_;
};

struct ThreadGroup {
  int depth = 0;
  ncclComm* comm = nullptr;
  std::vector<Call> calls;
};
thread_local ThreadGroup open_group;

int submit(ncclComm* comm, std::vector<Call> calls) {
  const std::shared_ptr<Member> me = comm->member;
  if (me->result == kInProgress) ++state.violations;
  if (me->result != kSuccess) return me->result;
  ++state.operations;
  int whose = me->rank;
  if (state.failing.compare_exchange_strong(whose, -1)) {
    me->result = state.failure.load();
    std::unique_lock lock(me->group->mutex);
    me->group->broken = true;
    return kInProgress;
  }
  me->result = kInProgress;
  const std::uint64_t sequence = ++me->sequence;
  start(me, [me, calls = std::move(calls), sequence] {
    FakeStream* stream = calls.front().stream;
    std::this_thread::sleep_for(std::chrono::microseconds(20));  // delays the stream's operation
    auto* run =
        new std::function<void()>([me, calls, sequence] { run_calls(me, calls, sequence); });
    const auto f = [](void* arg) {
      auto* what = static_cast<std::function<void()>*>(arg);
      (*what)();
      delete what;
    };
    if (stream != nullptr)
      stream->enqueue(stream, f, run);
    else
      f(run);
    int running = kInProgress;
    me->result.compare_exchange_strong(running, kSuccess);
  });
  return kInProgress;
}

int ask(ncclComm* comm, Call call) {
  if (open_group.depth > 0) {
    open_group.comm = comm;
    open_group.calls.push_back(call);
    return kSuccess;
  }
  const Inside inside(comm);
  return submit(comm, {call});
}

ncclComm* new_comm(std::shared_ptr<Group> group, int rank) {
  ++state.alive;
  auto* comm = new ncclComm;
  comm->member = std::make_shared<Member>();
  comm->member->group = std::move(group);
  comm->member->rank = rank;
  comm->thread = std::thread([member = comm->member] { work(member); });
  return comm;
}

void end(ncclComm* comm) {
  {
    const std::lock_guard lock(comm->member->mutex);
    comm->member->stopping = true;
  }
  comm->member->changed.notify_all();
  comm->thread.join();
  --state.alive;
  delete comm;
}

/// Gives every rank its place in the groups of a split.
void divide(Group::Meeting& meeting) {
  std::map<int, std::vector<std::pair<int, int>>> colors;  // color: key, rank
  for (const auto& [rank, request] : meeting.requests)
    if (request.first >= 0) colors[request.first].emplace_back(request.second, rank);
  for (auto& [color, ranks] : colors) {
    std::sort(ranks.begin(), ranks.end());
    const auto group = std::make_shared<Group>(static_cast<int>(ranks.size()));
    for (std::size_t i = 0; i < ranks.size(); ++i)
      meeting.places[ranks[i].second] = {group, static_cast<int>(i)};
  }
  meeting.done = true;
}

}  // namespace

extern "C" {

struct FakeConfig {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};
struct FakeId {
  std::uint64_t number;
  char rest[120];
};

int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}
int ncclGetUniqueId(FakeId* id) {
  const std::lock_guard lock(ids.mutex);
  *id = {};
  id->number = ++ids.last;
  return kSuccess;
}
int ncclCommInitRank(ncclComm**, int, FakeId, int) {
  return kInvalidArgument;  // such a call would block
}
int ncclCommInitRankConfig(ncclComm** comm, int ranks, FakeId id, int rank, FakeConfig* config) {
  if (config == nullptr || config->size < sizeof *config || config->magic != 0xcafebeef ||
      config->blocking != 0)
    return kInvalidArgument;
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(ids.mutex);
    std::shared_ptr<Group>& known = ids.groups[id.number];
    if (!known) known = std::make_shared<Group>(ranks);
    group = known;
  }
  *comm = new_comm(group, rank);
  const std::shared_ptr<Member> me = (*comm)->member;
  start(me, [me] {
    std::unique_lock lock(me->group->mutex);
    ++me->group->joined;
    me->group->changed.notify_all();
    await(me, lock, [&] { return me->group->joined == me->group->size; });
    me->result = kSuccess;
  });
  return kInProgress;
}
int ncclCommSplit(ncclComm* comm, int color, int key, ncclComm** made, FakeConfig* config) {
  if (config != nullptr) return kInvalidArgument;
  const Inside inside(comm);
  const std::shared_ptr<Member> me = comm->member;
  if (me->result != kSuccess) ++state.violations;
  me->result = kInProgress;
  *made = nullptr;
  const std::uint64_t sequence = ++me->sequence;
  start(me, [me, made, color, key, sequence] {
    Group& group = *me->group;
    std::unique_lock lock(group.mutex);
    Group::Meeting& meeting = group.meetings[sequence];
    meeting.requests[me->rank] = {color, key};
    if (static_cast<int>(meeting.requests.size()) == group.size) divide(meeting);
    group.changed.notify_all();
    await(me, lock, [&] { return meeting.done; });
    if (me->aborted) return;
    if (color >= 0) {
      const auto& [child, rank] = meeting.places.at(me->rank);
      ncclComm* one = new_comm(child, rank);
      one->member->result = kSuccess;
      *made = one;
    }
    me->result = kSuccess;
  });
  return kInProgress;
}
int ncclCommFinalize(ncclComm* comm) {
  const Inside inside(comm);
  const std::shared_ptr<Member> me = comm->member;
  if (me->result != kSuccess) return me->result;
  me->result = kInProgress;
  start(me, [me] { me->result = kSuccess; });
  return kInProgress;
}
int ncclCommDestroy(ncclComm* comm) {
  {
    const Inside inside(comm);
  }
  ++state.destroyed;
  end(comm);
  return kSuccess;
}
int ncclCommAbort(ncclComm* comm) {
  while (state.sticks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    const Inside inside(comm);
    const std::shared_ptr<Member> me = comm->member;
    {
      const std::lock_guard lock(me->group->mutex);
      me->aborted = true;
      me->group->broken = true;
    }
    me->group->changed.notify_all();
  }
  ++state.aborted;
  end(comm);
  return kSuccess;
}
int ncclCommGetAsyncError(ncclComm* comm, int* result) {
  const Inside inside(comm);
  *result = comm->member->result;
  return kSuccess;
}
int ncclAllReduce(const void* in, void* out, std::size_t count, int type, int operation,
                  ncclComm* comm, FakeStream* stream) {
  return ask(comm, {reduce_all, in, out, count, type, operation, 0, stream});
}
int ncclReduceScatter(const void* in, void* out, std::size_t count, int type, int operation,
                      ncclComm* comm, FakeStream* stream) {
  return ask(comm, {scatter, in, out, count, type, operation, 0, stream});
}
int ncclAllGather(const void* in, void* out, std::size_t count, int type, ncclComm* comm,
                  FakeStream* stream) {
  return ask(comm, {gather, in, out, count, type, 0, 0, stream});
}
int ncclBroadcast(const void* in, void* out, std::size_t count, int type, int root, ncclComm* comm,
                  FakeStream* stream) {
  return ask(comm, {broadcast_one, in, out, count, type, 0, root, stream});
}
int ncclSend(const void* in, std::size_t count, int type, int peer, ncclComm* comm,
             FakeStream* stream) {
  return ask(comm, {send_one, in, nullptr, count, type, 0, peer, stream});
}
int ncclRecv(void* out, std::size_t count, int type, int peer, ncclComm* comm, FakeStream* stream) {
  return ask(comm, {receive_one, nullptr, out, count, type, 0, peer, stream});
}
int ncclGroupStart() {
  ++open_group.depth;
  return kSuccess;
}
int ncclGroupEnd() {
  if (--open_group.depth > 0 || open_group.calls.empty()) return kSuccess;
  std::vector<Call> calls;
  calls.swap(open_group.calls);
  const Inside inside(open_group.comm);
  return submit(open_group.comm, std::move(calls));
}
const char* ncclGetErrorString(int result) {
  return result == 6 ? "remote process exited or there was a network error" : "an error";
}
const char* ncclGetLastError(void*) {
  return "";
}

const FakeNccl* fake_nccl() {
  static const FakeNccl table{[](unsigned ranks) { state.held = ranks; },
                              [](int rank, int result) {
                                state.failure = result;
                                state.failing = rank;
                              },
                              [](int yes) { state.sticks = yes != 0; },
                              [](const char* what) {
                                const std::string name = what;
                                if (name == "alive") return state.alive.load();
                                if (name == "aborted") return state.aborted.load();
                                if (name == "destroyed") return state.destroyed.load();
                                if (name == "operations") return state.operations.load();
                                return state.violations.load();
                              }};
  return &table;
}
}
// NOLINTEND(readability-identifier-naming)
