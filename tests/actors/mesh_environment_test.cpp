// Tests that processes of a launcher meet: real processes, on loopback.
#include "tests/actors/children.hpp"
#include "tests/eventually.hpp"
#include "troupe/actors/collective/internal/assembly.hpp"
#include "troupe/actors/collective/internal/endpoint.hpp"
#include "troupe/actors/collective/internal/greeting.hpp"
#include "troupe/actors/collective/internal/sockets.hpp"
#include "troupe/actors/collective/mesh.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/time.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

namespace troupe::collective {
namespace {

using internal::Hello;
using internal::Reply;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A socket that holds a port of loopback while it lives. One that does not listen lets rank 0
/// bind the same port (both set SO_REUSEADDR).
struct Port {
  Fd socket;
  int number = 0;
  explicit Port(bool listens = false) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(socket.get(), address, size), 0);
    EXPECT_EQ(::getsockname(socket.get(), address, &size), 0);
    number = ntohs(at.sin_port);
    EXPECT_TRUE(!listens || ::listen(socket.get(), 16) == 0);
  }
};

/// Returns a port for rank 0 that stays reserved until the program ends.
int free_port() {
  static std::deque<Port> kept;
  return kept.emplace_back().number;
}

struct Start {
  int rank = 0, world = 2;
  int port = 0;
  const char* host = "127.0.0.1";
  MeshShape shape = {.dp = 0};
  Duration timeout = seconds(30);
  std::string run_id = "test";
};

void clear_environment() {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "TROUPE_MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
    ::unsetenv(name);
}

void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);
}

void set_environment(const Start& start) {
  clear_environment();
  set("RANK", std::to_string(start.rank));
  set("WORLD_SIZE", std::to_string(start.world));
  set("MASTER_ADDR", start.host);
  set("MASTER_PORT", std::to_string(start.port));
  set("TORCHELASTIC_RUN_ID", start.run_id);
}

/// Sums rank + 1 over all ranks. Returns 0 when the sum is right.
int add_up(Mesh& mesh) {
  std::vector<std::int32_t> sum{mesh.rank() + 1};
  mesh.world->all_reduce(sum).wait();
  const int world = mesh.world->size();
  return sum[0] == world * (world + 1) / 2 ? 0 : 1;
}

Child start_rank(const Start& start, const std::function<int(Mesh&)>& f = add_up) {
  return start_child([&] {
    set_environment(start);
    Mesh mesh = Mesh::from_environment(start.shape, start.timeout);
    return f(mesh);
  });
}

/// Starts a rank that must be refused, or left alone. It exits with 0 when it gets an E whose
/// message contains `words`.
template <class E>
Child start_failing(const Start& start, const std::string& words) {
  return start_child([&] {
    set_environment(start);
    try {
      (void)Mesh::from_environment(start.shape, start.timeout);
    } catch (const E& e) {
      if (e.message().find(words) != std::string::npos) return 0;
      ::dprintf(2, "rank %d: %s\n", start.rank, e.what());
      return 2;
    }
    return 1;
  });
}

internal::Launch launch_of(const Start& start) {
  set_environment(start);
  const auto launch = internal::read_launch(Environment());
  clear_environment();
  return launch;
}

Hello hello_of(const Start& start) {
  return internal::hello_of(launch_of(start), {.dp = start.world});
}

/// Returns a connection to rank 0, once rank 0 listens.
Fd connect(const Start& start) {
  const auto endpoints = internal::resolve(launch_of(start), in(seconds(10)));
  Fd socket;
  EXPECT_TRUE(eventually([&] {
    socket = internal::connect_to(endpoints.front(), in(seconds(10)));
    return static_cast<bool>(socket);
  })) << "rank 0 does not listen";
  return socket;
}

void say(const Fd& socket, const void* bytes, std::size_t size) {
  EXPECT_EQ(::send(socket.get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
}

/// Returns the next reply; `unavailable` without a message when the connection ends.
Reply next_reply(const Fd& socket) {
  Reply reply;
  auto* bytes = reinterpret_cast<char*>(&reply);
  for (std::size_t n = 0; n < sizeof reply;) {
    if (!internal::is_readable_by(socket, in(seconds(10)))) return {.status = Reply::unavailable};
    const ssize_t got = ::recv(socket.get(), bytes + n, sizeof reply - n, 0);
    if (got <= 0) return {.status = Reply::unavailable};
    n += static_cast<std::size_t>(got);
  }
  return reply;
}

Reply greet(const Fd& socket, const Hello& hello) {
  say(socket, &hello, sizeof hello);
  return next_reply(socket);
}

bool ends(const Fd& socket) {
  return next_reply(socket).status == Reply::unavailable;
}

TEST(MeshFromEnvironment, TheGraceForTheMemoryExtendsTheDeadlineAndNeverShortensIt) {
  const Time now = steady_now();
  EXPECT_EQ(internal::share_deadline(now, now), now + internal::kShareGrace);
  EXPECT_EQ(internal::share_deadline(now + seconds(60), now), now + seconds(60));
  EXPECT_EQ(internal::share_deadline(Time::max(), now), Time::max());
}

TEST(MeshFromEnvironment, TwoProcessesAddUp) {
  const Start start{.port = free_port()};
  Child first = start_rank(start);
  Start second = start;
  second.rank = 1;
  EXPECT_EQ(start_rank(second).wait(), 0);
  EXPECT_EQ(first.wait(), 0);
}

TEST(MeshFromEnvironment, RanksThatComeBeforeRankZeroWaitForIt) {
  const Start zero{.world = 3, .port = free_port()};
  std::vector<Child> others;
  for (int rank = 1; rank < 3; ++rank) {
    Start start = zero;
    start.rank = rank;
    others.push_back(start_rank(start));
  }
  EXPECT_EQ(start_rank(zero).wait(), 0);
  for (Child& child : others) EXPECT_EQ(child.wait(), 0);
}

TEST(MeshFromEnvironment, FourProcessesAreDividedInTwoWays) {
  const Start zero{.world = 4, .port = free_port(), .shape = {.dp = 0, .tp = 2}};
  std::vector<Child> all;
  for (int rank = 0; rank < 4; ++rank) {
    Start start = zero;
    start.rank = rank;
    all.push_back(start_rank(start, [](Mesh& mesh) {
      std::vector<std::int32_t> row{1 << mesh.rank()}, column = row;
      mesh.tp->all_reduce(row).wait();
      mesh.dp->all_reduce(column).wait();
      const bool right = row[0] == 3 << (2 * mesh.dp_rank) && column[0] == 5 << mesh.tp_rank;
      return right && mesh.shape.dp == 2 ? 0 : 1;
    }));
  }
  for (Child& child : all) EXPECT_EQ(child.wait(), 0);
}

TEST(MeshFromEnvironment, OneProcessAloneNeedsNoNetwork) {
  Child child = start_child([] {
    clear_environment();
    set("RANK", "0");
    set("WORLD_SIZE", "1");
    const Mesh mesh = Mesh::from_environment();
    return mesh.world == nullptr && mesh.shape.ranks() == 1 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST(MeshFromEnvironment, SlurmsVariablesWillDo) {
  const int port = free_port();
  std::vector<Child> all;
  for (const char* rank : {"0", "1"})
    all.push_back(start_child([&] {
      clear_environment();
      set("SLURM_PROCID", rank);
      set("SLURM_NTASKS", "2");
      set("SLURM_JOB_ID", "77");
      set("TROUPE_MASTER_PORT", std::to_string(port));
      Mesh mesh = Mesh::from_environment();
      return add_up(mesh);
    }));
  for (Child& child : all) EXPECT_EQ(child.wait(), 0);
}

TEST(MeshFromEnvironment, TheAddressMayBeOfIPv6) {
  const Fd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  if (!probe || ::bind(probe.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0)
    GTEST_SKIP() << "no IPv6 on loopback here";
  for (const char* host : {"::1", "[::1]"}) {
    Start start{.port = free_port(), .host = host};
    Child first = start_rank(start);
    start.rank = 1;
    EXPECT_EQ(start_rank(start).wait(), 0);
    EXPECT_EQ(first.wait(), 0);
  }
}

TEST(MeshFromEnvironment, SignalsDoNotDisturbIt) {
  const int port = free_port();
  std::vector<Child> all;
  for (int rank = 0; rank < 2; ++rank)
    all.push_back(start_child([&] {
      struct sigaction action{};
      action.sa_handler = [](int) {};  // without SA_RESTART, so that calls end with EINTR
      ::sigaction(SIGALRM, &action, nullptr);
      const itimerval often{{0, 500}, {0, 500}};
      ::setitimer(ITIMER_REAL, &often, nullptr);
      set_environment({.rank = rank, .port = port});
      Mesh mesh = Mesh::from_environment();
      return add_up(mesh);
    }));
  for (Child& child : all) EXPECT_EQ(child.wait(), 0);
}

TEST(MeshFromEnvironment, WhoIsMissingIsNamedOnEveryRankAtTheDeadline) {
  const int port = free_port();
  const std::string words =
      "rank 2 of 3 did not come to 127.0.0.1:" + std::to_string(port) + " within 3.0 s";
  std::vector<Child> all;
  const Time begun = steady_now();
  for (int rank = 0; rank < 2; ++rank)
    all.push_back(start_failing<Unavailable>(
        {.rank = rank, .world = 3, .port = port, .timeout = seconds(3)}, words));
  for (Child& child : all) EXPECT_EQ(child.wait(), 0);
  EXPECT_LT(steady_now() - begun, seconds(10));
}

TEST(MeshFromEnvironment, WithoutRankZeroTheOthersSayThatItCannotBeReached) {
  Child child = start_failing<Unavailable>({.rank = 1, .port = free_port(), .timeout = seconds(1)},
                                           "Connection refused within 1.0 s");
  EXPECT_EQ(child.wait(), 0);
}

TEST(MeshFromEnvironment, ATimeoutThatIsOverAtOnceIsExplained) {
  const Start start{.rank = 1, .port = free_port(), .timeout = std::chrono::nanoseconds(1)};
  EXPECT_EQ(start_failing<Unavailable>(start, "rank 0 did not answer at 127.0.0.1:").wait(), 0);
}

TEST(MeshFromEnvironment, ARankThatLeavesIsMissingAgain) {
  const Start zero{.world = 3, .port = free_port(), .timeout = milliseconds(1500)};
  Child host = start_failing<Unavailable>(zero, " within 1.5 s; rank 1 came and left");
  Start one = zero;
  one.rank = 1;
  const Fd socket = connect(one);
  const Reply reply = greet(socket, hello_of(one));
  EXPECT_EQ(reply.status, Reply::waiting);
  EXPECT_EQ(std::string(reply.text).find("rank 2 of 3 did not come to 127.0.0.1:"), 0u);
  ::shutdown(socket.get(), SHUT_RDWR);
  EXPECT_EQ(host.wait(), 0);
}

TEST(MeshFromEnvironment, StrangersAreDroppedAndDisturbNobody) {
  Start start{.port = free_port()};
  Child host = start_rank(start);
  start.rank = 1;
  std::vector<Fd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect(start));  // more than there is room for
  EXPECT_TRUE(ends(silent.front())) << "the oldest makes room";
  const Fd garbage = connect(start);
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  say(garbage, request.data(), request.size());
  EXPECT_TRUE(ends(garbage));
  const Hello hello = hello_of(start);
  const Fd halting = connect(start);
  say(halting, &hello, 20);
  const Fd leaving = connect(start);
  say(leaving, &hello, 20);
  ::shutdown(leaving.get(), SHUT_WR);
  EXPECT_TRUE(ends(leaving));
  EXPECT_EQ(start_rank(start).wait(), 0);
  EXPECT_EQ(host.wait(), 0);
}

TEST(MeshFromEnvironment, ARankThatSaysMoreThanItsGreetingIsDropped) {
  Start start{.port = free_port()};
  start.world = 3;
  start.timeout = milliseconds(1500);
  Child host = start_failing<Unavailable>(start, "rank 1 came and left");
  start.rank = 1;
  const Fd socket = connect(start);
  EXPECT_EQ(greet(socket, hello_of(start)).status, Reply::waiting);
  say(socket, "more", 4);
  EXPECT_TRUE(ends(socket));
  EXPECT_EQ(host.wait(), 0);
}

TEST(MeshFromEnvironment, ASecondProcessOfARankIsRefusedAndTheOthersGoOn) {
  Start start{.world = 3, .port = free_port()};
  Child host = start_rank(start);
  start.rank = 1;
  // The first of the two processes is here before the second one comes.
  const Fd first = connect(start);
  Hello hello = hello_of(start);
  hello.pid = 4711;
  EXPECT_EQ(greet(first, hello).status, Reply::waiting);
  Child second = start_failing<InvalidArgument>(start, "the processes 4711 and ");
  EXPECT_EQ(second.wait(), 0);
  ::shutdown(first.get(), SHUT_RDWR);
  EXPECT_TRUE(ends(first));
  Child real = start_rank(start);
  start.rank = 2;
  EXPECT_EQ(start_rank(start).wait(), 0);
  EXPECT_EQ(real.wait(), 0);
  EXPECT_EQ(host.wait(), 0);
}

// A guest that gets no answer at one of rank 0's addresses connects again at the next one.
TEST(MeshFromEnvironment, ARankThatGreetsAgainReplacesItsEarlierConnection) {
  Start start{.world = 3, .port = free_port()};
  Child host = start_rank(start);
  start.rank = 1;
  const Hello hello = hello_of(start);
  const Fd first = connect(start), second = connect(start);
  EXPECT_EQ(greet(first, hello).status, Reply::waiting);
  EXPECT_EQ(greet(second, hello).status, Reply::waiting);
  EXPECT_TRUE(ends(first));
}

TEST(MeshFromEnvironment, ARankThatGaveUpBeforeItWasHeardIsNotTakenForOneThatCame) {
  Start start{.port = free_port()};
  Child host = start_rank(start);
  start.rank = 1;
  const Hello hello = hello_of(start);
  const Fd awake = connect(start);
  ASSERT_EQ(::kill(host.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(host.pid(), &status, WUNTRACED), host.pid());
  Fd first = connect(start);
  say(first, &hello, sizeof hello);
  first.reset();
  const Fd second = connect(start);
  say(second, &hello, sizeof hello);
  ASSERT_EQ(::kill(host.pid(), SIGCONT), 0);
  Reply reply = next_reply(second);
  while (reply.status == Reply::waiting) reply = next_reply(second);
  EXPECT_EQ(reply.status, Reply::complete);
}

TEST(MeshFromEnvironment, WhoContradictsRankZeroIsRefusedAndTheOthersGoOn) {
  Start start{.port = free_port()};
  Child host = start_rank(start);
  start.rank = 1;
  const Hello right = hello_of(start);
  const auto refusal = [&](const auto& change) {
    Hello hello = right;
    change(hello);
    const Reply reply = greet(connect(start), hello);
    EXPECT_EQ(reply.status, Reply::refused);
    return std::string(reply.text);
  };
  const auto has = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal([](Hello& h) { h.world = 3; }), "counts 3 ranks and rank 0 2"));
  EXPECT_TRUE(has(refusal([](Hello& h) { h.rank = 0; }), "is no rank from 1 to 1"));
  EXPECT_TRUE(has(refusal([](Hello& h) { h.rank = -1; }), "is no rank from 1 to 1"));
  EXPECT_TRUE(has(refusal([](Hello& h) { h.tp = 2; }), "asks for the mesh dp=2 tp=2 pp=1"));
  EXPECT_TRUE(has(refusal([](Hello& h) { ++h.job; }), "belongs to another job"));
  EXPECT_TRUE(has(refusal([](Hello& h) { h.version = 9; }), "another version of troupe"));
  EXPECT_TRUE(has(refusal([](Hello& h) { h.kernel[0] = '!'; }), "start all ranks on one host"));
  EXPECT_TRUE(has(refusal([](Hello& h) {
                    std::fill(std::begin(h.host), std::end(h.host), '\n');
                    h.world = 3;
                  }),
                  "on ??????"))
      << "names from the network are made printable";
  EXPECT_EQ(start_rank(start).wait(), 0);
  EXPECT_EQ(host.wait(), 0);
}

TEST(MeshFromEnvironment, APortInUseIsSaidWithWhatToChange) {
  const Port taken(/*listens=*/true);
  EXPECT_EQ(start_failing<Unavailable>({.port = taken.number}, "choose another MASTER_PORT").wait(),
            0);
  EXPECT_EQ(start_failing<Unavailable>({.rank = 1, .port = taken.number, .timeout = seconds(1)},
                                       "does not answer as rank 0 does")
                .wait(),
            0);
}

TEST(MeshFromEnvironment, AHostThatDoesNotExistIsRefused) {
  const Start start{.port = 1000, .host = "no host has blanks"};
  EXPECT_EQ(start_failing<InvalidArgument>(start, "MASTER_ADDR is 'no host has blanks'").wait(), 0);
}

TEST(MeshFromEnvironment, AShapeThatDoesNotDivideTheRanksIsRefusedWithoutWaiting) {
  const Time begun = steady_now();
  EXPECT_EQ(start_failing<InvalidArgument>({.world = 3, .port = 1000, .shape = {.dp = 0, .tp = 2}},
                                           "the mesh dp=1 tp=2 pp=1 does not divide 3 ranks")
                .wait(),
            0);
  EXPECT_EQ(start_failing<InvalidArgument>({.port = 1000, .shape = {.dp = 0, .tp = 0}},
                                           "does not divide 2 ranks")
                .wait(),
            0);
  EXPECT_LT(steady_now() - begun, seconds(10));
}

TEST(MeshFromEnvironment, WithoutMemoryOnRankZeroAllHearAtOnceWhy) {
  Start start{.port = free_port()};
  Child host = start_child([&] {
    set_environment(start);
    leave_descriptors(2);  // one for the listener, one for the guest
    try {
      (void)Mesh::from_environment(start.shape, start.timeout);
    } catch (const NoSpace&) {
      return 0;
    }
    return 1;
  });
  start.rank = 1;
  EXPECT_EQ(start_failing<Unavailable>(start, "rank 0: ").wait(), 0);
  EXPECT_EQ(host.wait(), 0);
}

TEST(MeshFromEnvironment, WithoutDescriptorsRankZeroSaysSoAndTakesNoProcessorTimeUntilThen) {
  Start start{.port = free_port(), .timeout = milliseconds(1000)};
  Child host = start_child([&] {
    set_environment(start);
    leave_descriptors(1);  // one for the listener
    const Duration before = processor_time();
    try {
      (void)Mesh::from_environment(start.shape, start.timeout);
    } catch (const Unavailable& e) {
      if (e.message().find("rank 0 could not let some in: ") == std::string::npos) return 2;
      return processor_time() - before < milliseconds(300) ? 0 : 3;
    }
    return 1;
  });
  const Fd waiting = connect(start);
  EXPECT_EQ(host.wait(), 0);
}

}  // namespace
}  // namespace troupe::collective
