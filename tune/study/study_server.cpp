#include "troupe/tune/study/study_server.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/leave_behind.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/tune/internal/json.hpp"
#include "troupe/tune/study/internal/files.hpp"
#include "troupe/tune/study/internal/study_questions.hpp"
#include "troupe/tune/study/study_protocol.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tune {
namespace {

constexpr std::size_t kMostLine = 64 * 1024;
constexpr int kQueue = 16;
/// How long no connection is accepted after the kernel could not give one.
constexpr Duration kRest = std::chrono::milliseconds(100);
constexpr Duration kLongestWait = std::chrono::hours(1);  ///< of one wait

using ClientId = std::uint64_t;

/// A command of a client, or the line that answers one.
template <class T>
struct Of {
  ClientId client = 0;
  T it;
};

struct Client {
  Fd socket;
  LineCutter lines{kMostLine};
  std::string out;
  std::size_t sent = 0;
  Time heard{};          ///< when it last asked or read something
  bool waits = false;    ///< its command has no answer yet
  bool ended = false;    ///< it sends nothing more
  bool closing = false;  ///< it is cut off after `out`

  bool sends() const { return sent < out.size(); }
  bool is_free() const { return !waits && !sends(); }
  void say(const std::string& line) {
    out = line + "\n";
    sent = 0;
  }
};

Error without_answer() {
  return Error(Code::unavailable,
               "tune: the study's process ended before it answered: see with `troupe tune show` "
               "whether the command had an effect",
               Outcome::unknown);
}

Result<Json> pause_or_resume(const StudyCommand& command, Experiment& experiment, Time now) {
  const bool pause = command.what == StudyCommand::What::pause;
  const auto trial = command.trial < 0 ? std::nullopt : std::optional(command.trial);
  const auto done = pause ? experiment.pause(trial, now) : experiment.resume(trial, now);
  if (!done) return done.error();
  Json answer{{"paused", pause}};
  if (trial) answer["trial"] = *trial;
  return answer;
}

Result<Json> carry_out(const StudyCommand& command, Experiment& experiment, Time now) {
  switch (command.what) {
    case StudyCommand::What::add: {
      const SearchSpace& space = experiment.board().space;
      const auto point = read_point(space, command.values);
      if (!point) return point.error();
      if (auto done = experiment.add(*point, now); !done) return done.error();
      return Json{{"added", point_json(*point, space)}, {"planned", experiment.board().planned}};
    }
    case StudyCommand::What::stop: {
      if (auto done = experiment.stop(command.trial, now); !done) return done.error();
      const TrialInfo* const trial = experiment.board().find(command.trial);
      const TrialState state = trial != nullptr ? trial->state : TrialState::stopped;
      return Json{{"trial", command.trial}, {"state", name_of(state)}};
    }
    case StudyCommand::What::pause:
    case StudyCommand::What::resume: return pause_or_resume(command, experiment, now);
    case StudyCommand::What::set: break;
  }
  const auto settings = read_settings(command.values);
  if (!settings) return settings.error();
  if (auto done = experiment.change(*settings, now); !done) return done.error();
  Json set = Json::object();
  for (const auto& [name, text] : command.values) set[name] = text;
  return Json{{"set", set}, {"planned", experiment.board().planned}};
}

/// Makes the socket of the folder. The mode is set before the file exists.
Result<Fd> listen_in(const StudyFolder& folder) {
  const std::string path = folder.path() + "/socket";
  const std::string name = folder.socket_address();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return internal::failed("name", path, ENAMETOOLONG);
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  Fd socket = make_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return internal::failed("make a socket for", path, errno);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return internal::failed("replace", path, errno);
  if (::fchmod(socket.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), kQueue) != 0)
    return internal::failed("listen at", path, errno);
  return socket;
}

}  // namespace

struct StudyServer::State {
  State(const StudyStore& store, Options wanted)
      : rows(store.rows()), path(store.folder().path() + "/socket"), options(std::move(wanted)) {}

  void run();
  void ring() const;
  void take_answers();
  Time next_deadline(Time now) const;
  void accept_all(Time now);
  /// Serves those that have hung up to their end. One that waits for an answer gets none.
  void drop_gone(Time now);
  bool read(Client& client, Time now);
  bool flush(Client& client, Time now);
  /// Takes the client's next request. Returns false when it has none.
  bool take_request(ClientId id, Client& client);
  void serve(const std::vector<std::pair<ClientId, short>>& events, Time now);
  void say_goodbye();

  StudyRows rows;
  const std::string path;  ///< of the socket
  const Options options;
  Fd listener, bell;
  // The runner's alone.
  std::vector<Of<std::string>> held;  ///< answers until the batch was written
  internal::StudyOverview seen;
  std::mutex mutex;
  // What `mutex` guards.
  std::deque<Of<StudyCommand>> waiting;
  std::vector<Of<std::string>> answers;
  internal::StudyOverview overview;
  bool over = false;
  bool runs = true;
  bool left = false;  ///< nobody waits for the thread
  std::condition_variable ended;
  // The server's thread's alone.
  std::map<ClientId, Client> clients;
  ClientId next_client = 1;
  Time accepts_from{};
  SignalMaskedThread thread;
};

void StudyServer::State::ring() const {
  const std::uint64_t one = 1;
  (void)!::write(bell.get(), &one, sizeof one);
}

void StudyServer::State::take_answers() {
  std::vector<Of<std::string>> taken;
  {
    const std::lock_guard guard(mutex);
    taken.swap(answers);
  }
  for (const Of<std::string>& answer : taken) {
    const auto client = clients.find(answer.client);
    if (client == clients.end()) continue;
    client->second.waits = false;
    client->second.say(answer.it);
  }
}

Time StudyServer::State::next_deadline(Time now) const {
  Time until = now + kLongestWait;
  if (accepts_from > now) until = std::min(until, accepts_from);
  for (const auto& [id, client] : clients)
    if (!client.waits) until = std::min(until, client.heard + options.idle);
  return until;
}

void StudyServer::State::accept_all(Time now) {
  for (;;) {
    Fd socket = make_fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) accepts_from = now + kRest;
      return;
    }
    Client client;
    client.socket = std::move(socket);
    client.heard = now;
    if (clients.size() >= options.most_clients) drop_gone(now);
    if (clients.size() >= options.most_clients) {
      client.say(error_line(
          Error(Code::overloaded, "tune: " + std::to_string(options.most_clients) +
                                      " clients ask this study already: try again later")));
      (void)flush(client, now);
      continue;
    }
    clients.emplace(next_client++, std::move(client));
  }
}

void StudyServer::State::drop_gone(Time now) {
  std::vector<pollfd> polled;
  std::vector<ClientId> ids;
  for (const auto& [id, client] : clients) {
    polled.push_back({client.socket.get(), 0, 0});
    ids.push_back(id);
  }
  if (wait_for(polled, Duration::zero()) <= 0) return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if ((polled[i].revents & POLLHUP) == 0) continue;
    if (clients.at(ids[i]).waits) {
      clients.erase(ids[i]);
      continue;
    }
    // The first reading takes its last requests, and the second one finds the end.
    for (int reading = 0; reading < 2; ++reading)
      if (clients.count(ids[i]) != 0) serve({{ids[i], POLLIN}}, now);
  }
}

/// Reads what is there. Returns false when the client is to be dropped.
bool StudyServer::State::read(Client& client, Time now) {
  std::array<char, 16 * 1024> buffer{};
  const ssize_t n = ::recv(client.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  if (n == 0) {
    client.ended = true;
    return true;
  }
  client.heard = now;
  if (client.lines.add({buffer.data(), static_cast<std::size_t>(n)})) return true;
  client.closing = true;
  client.say(error_line(Error(Code::invalid_argument, "tune: a request has more than " +
                                                          std::to_string(kMostLine) +
                                                          " bytes in a line: send a shorter one")));
  return true;
}

/// Sends what the client takes now. Returns false when it is gone.
bool StudyServer::State::flush(Client& client, Time now) {
  while (client.sends()) {
    const ssize_t n = ::send(client.socket.get(), client.out.data() + client.sent,
                             client.out.size() - client.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    client.sent += static_cast<std::size_t>(n);
    client.heard = now;
  }
  return true;
}

bool StudyServer::State::take_request(ClientId id, Client& client) {
  const auto line = client.lines.next();
  if (!line) return false;
  const auto call = read_call(*line);
  if (!call) {
    client.say(error_line(call.error()));
    return true;
  }
  if (const auto* question = std::get_if<StudyQuestion>(&*call)) {
    internal::StudyOverview known;
    {
      const std::lock_guard guard(mutex);
      known = overview;
    }
    client.say(internal::answer_to(*question, rows, &known));
    return true;
  }
  client.waits = true;
  {
    const std::lock_guard guard(mutex);
    if (over) return true;  // nobody takes it any more
    waiting.push_back({id, std::get<StudyCommand>(*call)});
  }
  if (options.wake) options.wake();
  return true;
}

/// Serves the clients of which poll() told something, and those whose requests were read before.
void StudyServer::State::serve(const std::vector<std::pair<ClientId, short>>& events, Time now) {
  for (const auto& [id, what] : events) {
    const auto found = clients.find(id);
    Client& client = found->second;
    bool keep = true;
    if ((what & POLLIN) != 0)
      keep = read(client, now);
    else if ((what & (POLLERR | POLLHUP | POLLNVAL)) != 0)
      keep = false;
    keep = keep && flush(client, now);
    bool none = client.closing;
    while (keep && !none && client.is_free()) {
      none = !take_request(id, client);
      keep = flush(client, now);
    }
    const bool done = client.is_free() && (client.closing || (none && client.ended));
    const bool idle = !client.waits && now >= client.heard + options.idle;
    if (!keep || done || idle) clients.erase(found);
  }
}

/// Answers what still waits, as far as the clients take it at once.
void StudyServer::State::say_goodbye() {
  take_answers();
  const std::string line = error_line(without_answer());
  for (auto& [id, client] : clients) {
    if (client.waits) client.say(line);
    (void)flush(client, steady_now());
  }
  clients.clear();
}

void StudyServer::State::run() {
  std::vector<pollfd> polled;
  std::vector<std::pair<ClientId, short>> events;
  for (;;) {
    {
      const std::lock_guard guard(mutex);
      if (over) break;
    }
    Time now = steady_now();
    polled.assign({{bell.get(), POLLIN, 0}, {accepts_from > now ? -1 : listener.get(), POLLIN, 0}});
    events.clear();
    for (const auto& [id, client] : clients) {
      const short wanted = client.sends()                 ? short{POLLOUT}
                           : client.waits || client.ended ? short{0}
                                                          : short{POLLIN};
      polled.push_back({client.socket.get(), wanted, 0});
      events.emplace_back(id, short{0});
    }
    if (wait_for(polled, next_deadline(now) - now) < 0 && errno != EINTR) break;
    std::uint64_t rings = 0;
    if ((polled[0].revents & POLLIN) != 0) (void)!::read(bell.get(), &rings, sizeof rings);
    take_answers();
    now = steady_now();
    for (std::size_t i = 0; i < events.size(); ++i) events[i].second = polled[i + 2].revents;
    serve(events, now);
    if ((polled[1].revents & POLLIN) != 0) accept_all(now);
  }
  say_goodbye();
  ::unlink(path.c_str());  // the folder is this process's as long as `rows` are
  const std::lock_guard guard(mutex);
  runs = false;
  if (left) rows = {};  // another process may have the study now
  ended.notify_all();
}

StudyServer::StudyServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<StudyServer>> StudyServer::open(const StudyStore& store, Options options) {
  auto state = std::make_shared<State>(store, std::move(options));
  auto listener = listen_in(store.folder());
  if (!listener) return listener.error();
  state->listener = std::move(*listener);
  state->bell = make_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->bell) return internal::failed("serve", state->path, errno);
  state->thread = SignalMaskedThread("tune-serve", [s = state.get()] { s->run(); });
  return std::unique_ptr<StudyServer>(new StudyServer(std::move(state)));
}

StudyServer::~StudyServer() {
  std::unique_lock lock(state_->mutex);
  state_->over = true;
  state_->ring();
  if (ends_soon_ && !state_->ended.wait_for(lock, kLastAnswer, [this] { return !state_->runs; })) {
    state_->left = true;
    lock.unlock();
    leave_behind(state_);
    return;
  }
  lock.unlock();
  state_->thread.join();
}

std::size_t StudyServer::apply(Experiment& experiment, Time now) {
  State& s = *state_;
  std::deque<Of<StudyCommand>> taken;
  {
    const std::lock_guard guard(s.mutex);
    taken.swap(s.waiting);
  }
  for (const Of<StudyCommand>& command : taken) {
    const auto done = carry_out(command.it, experiment, now);
    s.held.push_back({command.client, done ? answer_line(*done) : error_line(done.error())});
  }
  const Board& board = experiment.board();
  if (s.seen.space == nullptr) s.seen.space = std::make_shared<const SearchSpace>(board.space);
  s.seen.metric = board.metric;
  s.seen.planned = board.planned;
  s.seen.slots = board.slots;
  s.seen.room = board.room;
  s.seen.paused = board.paused;
  s.seen.over = board.over;
  s.seen.why_over = board.why_over;
  s.seen.seconds = board.seconds;
  s.seen.reports = board.reports;
  s.seen.best = board.best;
  s.seen.best_step = board.best_step();
  s.seen.best_score = board.best_score();
  return taken.size();
}

void StudyServer::answer_all() {
  State& s = *state_;
  const bool any = !s.held.empty();
  {
    const std::lock_guard guard(s.mutex);
    s.overview = s.seen;
    for (Of<std::string>& answer : s.held) s.answers.push_back(std::move(answer));
  }
  s.held.clear();
  if (any) s.ring();
}

}  // namespace troupe::tune
