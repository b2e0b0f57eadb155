#include "troupe/runtime/boot/local_cluster.hpp"

#include "troupe/objectstore/arena.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/process_limits.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/boot/child.hpp"
#include "troupe/runtime/boot/join_cluster.hpp"
#include "troupe/runtime/boot/take_role.hpp"
#include "troupe/runtime/os/listen_address.hpp"
#include "troupe/runtime/os/local_listener.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/os/state_folder.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>

namespace troupe::boot {
namespace {

using namespace std::chrono_literals;

constexpr int kRestarts = 5;  // of control in a row; a run of over kServedFor ends the row
constexpr Duration kServedFor = 30s;
constexpr Duration kSlice = 500ms;      // between two looks at a child that starts
constexpr Duration kFirstPause = 50ms;  // before the second restart in a row; it doubles each time

/// Returns what a child lacked that aborted while it started: a library that gets no thread aborts.
std::string hint(const std::string& how) {
  return os::is_abort(how) ? "; it may have lacked threads (" + limits_of_processes() + ")" : "";
}

}  // namespace

class LocalCluster::Supervisor {
 public:
  explicit Supervisor(LocalClusterOptions options) : options_(std::move(options)) {}
  ~Supervisor() { stop(); }

  /// Makes the identities and starts the watching thread. started() waits for the outcome.
  Result<void> begin();
  const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  void wipe_tokens() noexcept {
    for (std::string& token : tokens_) net::wipe(token.data(), token.size());
    tokens_.clear();
  }
  Result<void> started() { return started_.get_future().get(); }
  void stop();

  ClusterId id() const noexcept { return control_config_.cluster; }
  os::ControlEndpoint seat() const {
    const std::lock_guard lock(mutex_);
    return seat_;
  }
  pid_t control_pid() const {
    const std::lock_guard lock(mutex_);
    return control_pid_;
  }
  std::vector<LocalNode> nodes() const {
    const std::lock_guard lock(mutex_);
    return nodes_;
  }

 private:
  Result<void> make_node(std::uint32_t index);
  Result<void> make_control();
  Result<void> join();
  Result<void> keep_logs();

  // The functions below run on the watching thread.
  void make_tokens();
  void run();
  void loop();
  void poll_once();
  Duration until_next(Time now) const;
  void discount_standstill(Time now, Duration waited);
  Result<void> start_child(Child& child, os::Role role, Duration within);
  void start_control();
  void start_agents();
  void on_socket(Child& child);
  void on_serving(Child& child, const os::Ready& ready);
  void on_timeout(Child& child);
  void on_end(Child& child, const std::string& how);
  void control_ended(const std::string& how);
  void agent_ended(std::size_t index, const std::string& how);
  void fail(Code code, const std::string& why);
  void succeed_when_all_serve();
  void end_all();
  void wait_for_ends(const std::vector<Child*>& children, Time until);
  std::vector<Child*> living();
  bool is_control(const Child& child) const { return &child == &control_; }
  std::size_t index_of(const Child& child) const {
    return static_cast<std::size_t>(&child - agents_.data());
  }
  void tell(const ClusterEvent& event) {
    if (options_.on_event) options_.on_event(event);
  }

  LocalClusterOptions options_;
  os::ClusterFolder folder_;  ///< locked as long as the cluster runs
  Fd wake_;
  SignalMaskedThread thread_;
  std::promise<Result<void>> started_;

  os::ControlConfig control_config_;
  std::vector<os::AgentConfig> agent_configs_;
  bool joined_ = false;  ///< control runs elsewhere
  std::vector<net::SecretKey> token_secrets_;
  std::vector<std::string> tokens_;  ///< complete before started_ has its value
  Child control_;
  std::vector<Child> agents_;
  bool up_ = false, over_ = false;
  bool told_ = false;  ///< started_ has its value
  int restarts_ = 0;
  std::optional<Time> restart_at_;
  Time looked_{};  ///< at the children
  std::string last_end_;

  mutable std::mutex mutex_;  // guards what follows
  os::ControlEndpoint seat_;
  pid_t control_pid_ = 0;
  std::vector<LocalNode> nodes_;
};

Result<void> LocalCluster::Supervisor::begin() {
  link_roles();
  const bool joins = !options_.join.empty();
  const auto bad = [](const std::string& why) { return Error(Code::invalid_argument, why); };
  if (options_.nodes < 1 || options_.nodes > os::kMaxAdmitted)
    return bad("a local cluster has 1 to " + std::to_string(os::kMaxAdmitted) + " nodes, not " +
               std::to_string(options_.nodes));
  if (options_.join_tokens > os::kMaxJoinKeys)
    return bad("at most " + std::to_string(os::kMaxJoinKeys) +
               " join tokens are honoured at a time");
  if (joins && (options_.nodes != 1 || options_.join_tokens != 0 || !options_.data_folder.empty()))
    return bad("a join token admits one node, and control runs elsewhere");
  if (options_.memory.count == 0)
    options_.memory = Bytes{objectstore::default_arena_bytes().count / options_.nodes};
  else if (auto fits = objectstore::check_arena(options_.memory, options_.nodes); !fits)
    return fits;
  if (options_.listen.empty() && !joins)
    if (auto works = os::check_loopback(); !works) return works;
  for (std::uint32_t i = 0; i < options_.nodes; ++i)
    if (auto made = make_node(i); !made) return made;
  if (auto known = joins ? join() : make_control(); !known) return known;
  if (auto kept = keep_logs(); !kept) return kept;
  for (os::AgentConfig& config : agent_configs_) {
    config.cluster = control_config_.cluster;
    config.socket_name = os::door_name(config.cluster, config.node);
    nodes_.push_back({config.node, config.name, config.socket_name, "", 0, true});
  }
  control_.who = "control";
  agents_.resize(options_.nodes);
  wake_ = make_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_)
    return Error(Code::out_of_memory,
                 std::string("cannot watch processes: ") + std::strerror(errno));
  try {
    thread_ = SignalMaskedThread("troupe-cluster", [this] { run(); });
  } catch (const Error& error) {
    return error;
  }
  return {};
}

Result<void> LocalCluster::Supervisor::make_node(std::uint32_t index) {
  auto keys = net::CurveKeys::generate();
  if (!keys) return keys.error();
  os::AgentConfig config;
  config.node = NodeId::random();
  config.name = options_.join.empty() ? "node-" + std::to_string(index)
                                      : "node-" + config.node.str().substr(0, 6);
  static_cast<os::NodeOffer&>(config) = static_cast<const os::NodeOffer&>(options_);
  config.without_slots = options_.without_slots;
  config.keys = std::move(*keys);
  config.listen = options_.listen.empty() ? os::kListenHere : options_.listen;
  config.together = options_.nodes;
  config.beside_control = options_.join.empty();
  config.embedded = options_.embedded;
  control_config_.admitted.push_back({config.node, config.keys.public_key});
  agent_configs_.push_back(std::move(config));
  return {};
}

Result<void> LocalCluster::Supervisor::make_control() {
  auto keys = net::CurveKeys::generate();
  if (!keys) return keys.error();
  seat_ = {NodeId::random(), keys->public_key, ""};
  control_config_.cluster = ClusterId::random();
  control_config_.node = seat_.node;
  control_config_.keys = std::move(*keys);
  control_config_.data_folder = options_.data_folder;
  if (options_.data_folder.empty()) {
    control_config_.store = make_fd(memfd_create("troupe-control", MFD_CLOEXEC));
    if (!control_config_.store)
      return Error(Code::out_of_memory,
                   std::string("no memory for control's store: ") + std::strerror(errno));
  }
  control_config_.listen = !options_.control_listen.empty() ? options_.control_listen
                           : !options_.listen.empty()       ? options_.listen
                                                            : os::kListenHere;
  for (std::uint32_t i = 0; i < options_.join_tokens; ++i) {
    auto one_time = net::CurveKeys::generate();
    if (!one_time) return one_time.error();
    control_config_.join_keys.push_back(one_time->public_key);
    token_secrets_.push_back(std::move(one_time->secret_key));
  }
  return {};
}

Result<void> LocalCluster::Supervisor::join() {
  auto token = net::decode_join_token(options_.join);
  net::wipe(options_.join.data(), options_.join.size());
  if (!token) return token.error();
  os::AgentConfig& node = agent_configs_.front();
  // A bad address must fail before the token is spent.
  auto listen = os::listen_address(options_.listen, token->door);
  if (!listen) return listen.error();
  node.listen = std::move(*listen);
  auto joined =
      join_cluster(*token, node.node, node.name, node.keys.public_key, options_.start_within);
  if (!joined) return joined.error();
  control_config_.cluster = joined->cluster;
  seat_ = joined->control;
  joined_ = true;
  return {};
}

/// Makes the cluster's folder in STATE, and tells each agent where it keeps its lines.
Result<void> LocalCluster::Supervisor::keep_logs() {
  const std::string& state = options_.state_folder;
  if (state.empty()) return {};
  auto folder = os::ClusterFolder::open(state, control_config_.cluster);
  if (!folder) return folder.error();
  folder_ = std::move(*folder);
  os::prune_state(state);
  const Bytes most = options_.log_bytes.count != 0
                         ? options_.log_bytes
                         : Bytes{os::log_bytes_of_node(state, options_.nodes)};
  for (os::AgentConfig& config : agent_configs_) {
    config.log_folder = folder_.path() + "/" + config.name;
    config.log_bytes = most;
  }
  return {};
}

/// Composes the join tokens, when control's door is known.
void LocalCluster::Supervisor::make_tokens() {
  for (net::SecretKey& secret : token_secrets_) {
    net::JoinToken token;
    token.door = seat_.door;
    token.head = seat_.key;
    token.one_time = std::move(secret);
    tokens_.push_back(net::encode(token));
  }
  token_secrets_.clear();
}

void LocalCluster::Supervisor::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void LocalCluster::Supervisor::run() {
  if (joined_)
    start_agents();
  else
    start_control();
  loop();
  end_all();
}

void LocalCluster::Supervisor::loop() {
  while (!over_) {
    poll_once();
    const Time now = steady_now();
    for (Child* child : living())
      if (child->state == Child::State::starting && child->deadline <= now) on_timeout(*child);
    if (!over_ && restart_at_ && *restart_at_ <= now) {
      restart_at_.reset();
      start_control();
    }
  }
}

void LocalCluster::Supervisor::poll_once() {
  std::vector<pollfd> set{{wake_.get(), POLLIN, 0}};
  const std::vector<Child*> children = living();
  for (const Child* child : children) {
    set.push_back({child->pidfd.get(), POLLIN, 0});
    set.push_back({child->state == Child::State::starting ? child->socket.get() : -1, POLLIN, 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_next(steady_now()));
  const int ready = poll(set.data(), set.size(), static_cast<int>(left.count()));
  discount_standstill(steady_now(), left);
  if (ready <= 0) return;
  if (set[0].revents != 0) {
    over_ = true;
    return;
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    Child& child = *children[i];
    // Its last message is read before its end is handled.
    if (set[2 * i + 2].revents != 0) on_socket(child);
    if (child.state == Child::State::ended || set[2 * i + 1].revents == 0) continue;
    if (auto how = child.reap()) on_end(child, *how);
  }
}

/// When this process stood still, its children probably did, too: they get the time back.
void LocalCluster::Supervisor::discount_standstill(Time now, Duration waited) {
  const Time before = std::exchange(looked_, now);
  const Duration late = before == Time{} ? Duration(0) : now - before - waited;
  if (late < kSlice) return;
  for (Child* child : living())
    if (child->state == Child::State::starting) child->deadline += late;
}

Duration LocalCluster::Supervisor::until_next(Time now) const {
  Time next = now + 10s;
  const auto look = [&](const Child& child) {
    if (child.state == Child::State::starting)
      next = std::min({next, child.deadline, now + kSlice});
  };
  look(control_);
  for (const Child& child : agents_) look(child);
  if (restart_at_) next = std::min(next, *restart_at_);
  return std::max<Duration>(next - now, Duration(0));
}

std::vector<Child*> LocalCluster::Supervisor::living() {
  std::vector<Child*> found;
  const auto look = [&](Child& child) {
    if (child.is_alive()) found.push_back(&child);
  };
  look(control_);
  for (Child& child : agents_) look(child);
  return found;
}

Result<void> LocalCluster::Supervisor::start_child(Child& child, os::Role role, Duration within) {
  return child.start(
      [&](Fd socket) {
        return options_.starter
                   ? options_.starter(role, std::move(socket), options_.executable)
                   : os::spawn(role, std::move(socket), os::cluster_text(), options_.executable);
      },
      within);
}

void LocalCluster::Supervisor::start_control() {
  if (up_) {
    control_config_.listen = seat_.door;  // the agents connect to this door again
    // Some tokens may be spent, and only a store on disk is sure to know which.
    if (options_.data_folder.empty()) control_config_.join_keys.clear();
  }
  auto started = start_child(control_, os::Role::control, options_.start_within);
  if (started) {
    {
      const std::lock_guard lock(mutex_);
      control_pid_ = control_.pid;
    }
    started = os::send_config(control_.socket.get(), control_config_);
    // If it has ended already, reap() reports the reason, which says more than this error.
    if (started || started.error().code() == Code::unavailable) return;
  }
  if (up_) return control_ended(started.error().message());
  fail(started.error().code(),
       "the cluster's control cannot be started: " + started.error().message());
}

void LocalCluster::Supervisor::start_agents() {
  for (std::size_t i = 0; i < agents_.size() && !over_; ++i) {
    os::AgentConfig& config = agent_configs_[i];
    config.control = seat_;
    agents_[i].who = "the agent of " + config.name;
    auto started = start_child(agents_[i], os::Role::agent, options_.start_within);
    if (started) {
      {
        const std::lock_guard lock(mutex_);
        nodes_[i].pid = agents_[i].pid;
      }
      started = os::send_config(agents_[i].socket.get(), config);
      config.keys.secret_key.clear();  // only the agent keeps it from now on
      if (started || started.error().code() == Code::unavailable) continue;
    }
    fail(started.error().code(),
         agents_[i].who + " cannot be started: " + started.error().message());
  }
}

void LocalCluster::Supervisor::on_socket(Child& child) {
  auto ready = os::receive_ready(child.socket.get(), 0s, child.who);
  if (ready && ready->error.empty()) return on_serving(child, *ready);
  if (!ready && ready.error().code() == Code::unavailable) {
    // The child has closed its socket, so it is ending. Its pidfd becomes readable soon after, and
    // its status tells how it ended.
    if (auto how = child.reap_within(1s)) return on_end(child, *how);
  }
  const std::string why = ready ? ready->error : ready.error().message();
  child.kill();
  on_end(child, "cannot serve: " + why);
}

void LocalCluster::Supervisor::on_serving(Child& child, const os::Ready& ready) {
  child.serves(steady_now());
  if (!is_control(child)) {
    const std::lock_guard lock(mutex_);
    nodes_[index_of(child)].door = ready.door;
  } else if (!up_) {
    {
      const std::lock_guard lock(mutex_);
      seat_.door = ready.door;
    }
    make_tokens();
    start_agents();
  } else {
    tell({ClusterEvent::Kind::control_restarted,
          {},
          "control " + last_end_ + "; it was started again and serves as process " +
              std::to_string(child.pid)});
  }
  succeed_when_all_serve();
}

void LocalCluster::Supervisor::succeed_when_all_serve() {
  if (up_ || over_ || (!joined_ && control_.state != Child::State::serving)) return;
  for (const Child& child : agents_)
    if (child.state != Child::State::serving) return;
  up_ = told_ = true;
  started_.set_value({});
}

void LocalCluster::Supervisor::on_timeout(Child& child) {
  child.kill();
  on_end(child, "did not answer within " +
                    std::to_string(
                        std::chrono::duration_cast<std::chrono::milliseconds>(options_.start_within)
                            .count()) +
                    " ms");
}

void LocalCluster::Supervisor::on_end(Child& child, const std::string& how) {
  const bool timed_out = child.state == Child::State::starting && child.deadline <= steady_now();
  child.ended();
  if (!up_)
    return fail(timed_out ? Code::timed_out : Code::unavailable,
                child.who + " (process " + std::to_string(child.pid) + ") " + how +
                    " while the cluster started" + hint(how));
  if (is_control(child)) return control_ended(how);
  agent_ended(index_of(child), how);
}

void LocalCluster::Supervisor::control_ended(const std::string& how) {
  const Time now = steady_now();
  control_.state = Child::State::ended;
  last_end_ = how;
  {
    const std::lock_guard lock(mutex_);
    control_pid_ = 0;
  }
  restarts_ = now - control_.since > kServedFor ? 1 : restarts_ + 1;
  if (restarts_ > kRestarts)
    return tell({ClusterEvent::Kind::control_lost,
                 {},
                 "control " + how + ", for the " + std::to_string(restarts_) +
                     "th time in a row: it is not started again. Work that runs goes on; nothing "
                     "that needs control does"});
  restart_at_ = now + (restarts_ == 1 ? Duration(0) : kFirstPause * (1 << (restarts_ - 2)));
}

void LocalCluster::Supervisor::agent_ended(std::size_t index, const std::string& how) {
  NodeId id;
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    nodes_[index].alive = false;
    id = nodes_[index].id;
    name = nodes_[index].name;
  }
  if (os::is_good_end(how))
    return tell({ClusterEvent::Kind::agent_left, id,
                 "the agent of " + name + " (process " + std::to_string(agents_[index].pid) +
                     ") has left: it was drained, or the cluster was ended at its head"});
  tell({ClusterEvent::Kind::agent_died, id,
        "the agent of " + name + " (process " + std::to_string(agents_[index].pid) + ") " + how +
            ": the node is gone with its workers and the objects that only it had"});
}

/// Gives started() its error and ends the loop. Has no effect once started() has its value.
void LocalCluster::Supervisor::fail(Code code, const std::string& why) {
  if (told_) return;
  told_ = over_ = true;
  started_.set_value(Error(code, why));
}

void LocalCluster::Supervisor::end_all() {
  const Time until = steady_now() + options_.stop_within;
  control_.announce_end();
  std::vector<Child*> agents;
  for (Child* child : living())
    if (!is_control(*child)) agents.push_back(child);
  for (Child* child : agents) child->tell_to_end();
  wait_for_ends(agents, until);
  control_.tell_to_end();
  if (control_.is_alive()) wait_for_ends({&control_}, std::max(until, steady_now() + 1s));
}

void LocalCluster::Supervisor::wait_for_ends(const std::vector<Child*>& children, Time until) {
  for (Child* child : children) child->end_within(until - steady_now());
}

LocalCluster::LocalCluster(std::unique_ptr<Supervisor> supervisor)
    : supervisor_(std::move(supervisor)) {}
LocalCluster::~LocalCluster() = default;

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(LocalClusterOptions options) {
  auto supervisor = std::make_unique<Supervisor>(std::move(options));
  if (auto begun = supervisor->begin(); !begun) return begun.error();
  if (auto up = supervisor->started(); !up) return up.error();
  return std::unique_ptr<LocalCluster>(new LocalCluster(std::move(supervisor)));
}

ClusterId LocalCluster::id() const noexcept {
  return supervisor_->id();
}
os::ControlEndpoint LocalCluster::control() const {
  return supervisor_->seat();
}
pid_t LocalCluster::control_pid() const {
  return supervisor_->control_pid();
}
const std::vector<std::string>& LocalCluster::join_tokens() const noexcept {
  return supervisor_->tokens();
}
void LocalCluster::wipe_join_tokens() noexcept {
  supervisor_->wipe_tokens();
}
std::vector<LocalNode> LocalCluster::nodes() const {
  return supervisor_->nodes();
}

}  // namespace troupe::boot
