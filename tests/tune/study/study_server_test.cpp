// Tests the door of a running study: questions, commands that are answered after the write, bounds
// against clients of any kind, and clients of owners that are gone or silent.
#include "troupe/tune/study/study_server.hpp"

#include "tests/eventually.hpp"
#include "tests/tune/study/owners.hpp"
#include "tests/tune/study/studies.hpp"
#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/tune/study/study_client.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>
#include <semaphore>
#include <utility>

namespace troupe::tune {
namespace study_server_test {
namespace {

using namespace std::chrono_literals;
using About = StudyQuestion::About;
using What = StudyCommand::What;
using studies::Owner;

/// A connection of a client that sends what it likes.
class RawClient {
 public:
  explicit RawClient(const std::string& folder) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder + "/socket";
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    connected_ =
        ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }
  int fd() const { return socket_.get(); }
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  /// Returns the next line; nothing when the server has cut the connection.
  std::optional<std::string> line() {
    std::optional<std::string> next;
    while (!(next = lines_.next())) {
      pollfd entry{fd(), POLLIN, 0};
      char bytes[4096];
      if (wait_for({&entry, 1}, 20s) != 1) return std::nullopt;
      const ssize_t n = ::recv(fd(), bytes, sizeof bytes, 0);
      if (n <= 0) return std::nullopt;
      EXPECT_TRUE(lines_.add({bytes, static_cast<std::size_t>(n)}));
    }
    return next;
  }
  std::string ask(const std::string& question) {
    send(question + "\n");
    return line().value_or("cut");
  }

 private:
  Fd socket_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  bool connected_ = false;
  LineCutter lines_{1 << 20};
};

class StudyServerTest : public studies::Test {
 protected:
  StudyClient client(Duration patience = 20s) const {
    return StudyClient::open(study_, patience).value();
  }
  static std::string message(const Result<Json>& answer) {
    return answer ? "" : answer.error().message();
  }
};

std::string text_of(const Json& json, const char* name) {
  const Json* field = json.find(name);
  return field == nullptr              ? "none"
         : field->as_text() != nullptr ? *field->as_text()
                                       : field->dump();
}

TEST_F(StudyServerTest, QuestionsAreAnsweredFromTheRows) {
  Owner owner(study_);
  owner.act([](Experiment& e, Time now) {
    e.reported(0, 1, {.step = 1, .score = 0.25}, now);
    e.reported(1, 1, {.step = 1, .score = 0.75}, now);
  });
  auto study = client();
  ASSERT_TRUE(study.owner());
  EXPECT_EQ(study.owner()->pid, ::getpid());
  const Json state = study.ask({}).value();
  EXPECT_EQ(text_of(*state.find("meta"), "name"), "resnet");
  EXPECT_EQ(text_of(state, "trials"), "3");
  EXPECT_EQ(text_of(state, "planned"), "20");
  EXPECT_EQ(text_of(state, "over"), "false");
  EXPECT_EQ(text_of(*state.find("best"), "trial"), "1");
  EXPECT_EQ(text_of(*state.find("best"), "score"), "0.75");
  const Json page = study.ask({.about = About::trials, .from = 1, .most = 1}).value();
  ASSERT_EQ(page.find("trials")->as_array()->size(), 1U);
  EXPECT_EQ(text_of(page, "next"), "2");
  const Json rest = study.ask({.about = About::trials, .from = 2}).value();
  ASSERT_EQ(rest.find("trials")->as_array()->size(), 1U);
  EXPECT_EQ(rest.find("next"), nullptr);
  const Json one = study.ask({.about = About::trial, .from = 1}).value();
  EXPECT_EQ(text_of(*one.find("row"), "state"), "running");
  EXPECT_EQ(text_of(*one.find("row"), "score"), "0.75");
  EXPECT_NE(message(study.ask({.about = About::trial, .from = 99})).find("trial 99 does not exist"),
            std::string::npos);
  EXPECT_FALSE(study.ask({.about = About::trial, .from = 1ull << 40}).ok());
}

TEST_F(StudyServerTest, EventsHaveWordsAndGoOnWhereTheLastPageEnded) {
  Owner owner(study_);
  auto study = client();
  StudyQuestion question{.about = About::events, .from = 0, .most = 2};
  std::uint64_t seen = 0;
  std::string words;
  const auto read_all = [&] {
    for (;;) {
      const Json page = study.ask(question).value();
      const Json::Array& events = *page.find("events")->as_array();
      for (const Json& event : events) {
        EXPECT_EQ(event.find("number")->as_whole<std::uint64_t>(), ++seen);
        words += text_of(event, "words") + "\n";
      }
      question.from = page.find("next")->as_whole<std::uint64_t>().value();
      if (events.empty()) return;
    }
  };
  read_all();
  EXPECT_EQ(seen, owner.store().last_event());
  EXPECT_EQ(words.find("the user stopped it"), std::string::npos);
  owner.act([](Experiment& e, Time now) { EXPECT_TRUE(e.stop(0, now).ok()); });
  owner.act([](Experiment& e, Time now) { e.ended(0, 1, "", now); });
  read_all();
  EXPECT_NE(words.find("the user stopped it"), std::string::npos) << words;
}

TEST_F(StudyServerTest, CommandsReachTheExperiment) {
  Owner owner(study_);
  auto study = client();
  const Json added =
      study.command({.what = What::add, .values = {{"lr", "0.5"}, {"optimizer", "adam"}}}).value();
  EXPECT_EQ(added.find("added")->dump(), R"({"lr":0.5,"optimizer":"adam"})");
  const Json set = study.command({.what = What::set, .values = {{"trials", "40"}}}).value();
  EXPECT_EQ(text_of(set, "planned"), "40");
  EXPECT_EQ(text_of(study.command({.what = What::stop, .trial = 0}).value(), "state"), "leaving");
  owner.act([](Experiment& e, Time now) {
    EXPECT_EQ(e.board().planned, 40);
    e.ended(0, 1, "", now);
    ASSERT_EQ(e.board().trials.size(), 4U);
    EXPECT_EQ(e.board().trials[3].params, (Point{0.5, 1}));
  });
}

TEST_F(StudyServerTest, CommandsThatCannotBeDoneAreRefusedAndChangeNothing) {
  Owner owner(study_);
  auto study = client();
  const std::uint64_t before = owner.store().last_event();
  EXPECT_EQ(message(study.command({.what = What::stop, .trial = 99})),
            "tune: trial 99 does not exist");
  EXPECT_NE(message(study.command({.what = What::set, .values = {{"goal", "minimize"}}}))
                .find("'goal' is no option that may change"),
            std::string::npos);
  EXPECT_NE(message(study.command({.what = What::add, .values = {{"lr", "0.5"}}}))
                .find("parameter optimizer has no value"),
            std::string::npos);
  EXPECT_EQ(owner.store().last_event(), before);
  owner.act([](Experiment& e, Time now) { e.ended(0, 1, "its disk broke", now); });
  EXPECT_EQ(message(study.command({.what = What::stop, .trial = 0})),
            "tune: trial 0 is over: it failed");
}

TEST_F(StudyServerTest, APauseIsShownWhileTheStudyRunsAndAfterwards) {
  {
    Owner owner(study_);
    auto study = client();
    EXPECT_EQ(text_of(study.ask({}).value(), "paused"), "false");
    EXPECT_EQ(study.command({.what = What::pause, .trial = 1}).value().dump(),
              R"({"paused":true,"trial":1})");
    EXPECT_EQ(study.command({.what = What::pause}).value().dump(), R"({"paused":true})");
    EXPECT_EQ(text_of(study.ask({}).value(), "paused"), "true");
    EXPECT_EQ(message(study.command({.what = What::pause})), "tune: the study is paused already");
    EXPECT_EQ(study.command({.what = What::resume, .trial = 1}).value().dump(),
              R"({"paused":false,"trial":1})");
  }
  EXPECT_EQ(text_of(client().ask({}).value(), "paused"), "true") << "from the store";
}

TEST_F(StudyServerTest, ACommandIsAnsweredAfterTheBatchWasWritten) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  Experiment experiment(studies::owned_space(), {.goal = maximize, .trials = 4, .concurrent = 2});
  experiment.with_store();
  std::mutex mutex;
  std::condition_variable woken;
  bool asked = false;
  const auto server = StudyServer::open(*store, {.wake = [&] {
                        const std::lock_guard guard(mutex);
                        asked = true;
                        woken.notify_all();
                      }}).value();
  experiment.begin(steady_now());
  RawClient raw(study_);
  raw.send("{\"do\":\"stop\",\"trial\":1}\n");
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(woken.wait_for(lock, 20s, [&] { return asked; }));
  }
  EXPECT_EQ(server->apply(experiment, steady_now()), 1U);
  // The server goes on for others meanwhile, and still owes this answer.
  RawClient other(study_);
  EXPECT_EQ(other.ask("{\"ask\":\"state\"}").find("planned"), std::string::npos);
  EXPECT_FALSE(is_ready(raw.fd()));
  ASSERT_TRUE(store->write(experiment.take_batch()).ok());
  server->answer_all();
  EXPECT_EQ(raw.line().value_or("cut"), R"({"answer":{"state":"leaving","trial":1}})");
  EXPECT_NE(other.ask("{\"ask\":\"state\"}").find("\"planned\":4"), std::string::npos);
}

TEST_F(StudyServerTest, CommandsThatStillWaitAtTheEndGetAnError) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  std::mutex mutex;
  std::condition_variable woken;
  bool asked = false;
  auto server = StudyServer::open(*store, {.wake = [&] {
                  const std::lock_guard guard(mutex);
                  asked = true;
                  woken.notify_all();
                }}).value();
  RawClient raw(study_);
  raw.send("{\"do\":\"stop\",\"trial\":1}\n");
  {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(woken.wait_for(lock, 20s, [&] { return asked; }));
  }
  server.reset();
  EXPECT_NE(raw.line().value_or("cut").find("ended before it answered"), std::string::npos);
  EXPECT_FALSE(raw.line());
  EXPECT_FALSE(studies::fs::exists(study_ + "/socket"));
}

TEST_F(StudyServerTest, ASilentOwnerIsNamedAfterTheClientsPatience) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  const auto server = StudyServer::open(*store, {}).value();  // and nobody calls apply()
  auto study = client(100ms);
  const auto answer = study.command({.what = What::stop, .trial = 1});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code(), Code::timed_out);
  EXPECT_TRUE(answer.error().maybe_executed());
  EXPECT_NE(message(answer).find("(pid " + std::to_string(::getpid()) +
                                 ") has not answered within 100 ms"),
            std::string::npos)
      << message(answer);
  EXPECT_EQ(study.ask({}).error().code(), Code::unavailable);
}

TEST_F(StudyServerTest, TheSocketIsItsUsersAloneAndReplacesAnOldOne) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  studies::spill(study_ + "/socket", "an owner was killed here");
  const mode_t before = ::umask(0);
  const auto server = StudyServer::open(*store, {});
  ::umask(before);
  ASSERT_TRUE(server.ok()) << server.error().message();
  struct stat there{};
  ASSERT_EQ(::stat((study_ + "/socket").c_str(), &there), 0);
  EXPECT_TRUE(S_ISSOCK(there.st_mode));
  EXPECT_EQ(there.st_mode & 0777, 0600U);
}

TEST_F(StudyServerTest, AFolderWithALongPathIsServed) {
  study_ = root_ + "/" + std::string(200, 'x') + "/study";
  Owner owner(study_);
  EXPECT_EQ(text_of(client().ask({}).value(), "trials"), "3");
}

TEST_F(StudyServerTest, AStudyThatNobodyRunsIsReadFromItsStore) {
  EXPECT_FALSE(StudyClient::open(study_).ok());
  {
    const Owner owner(study_);
  }
  auto study = client();
  EXPECT_FALSE(study.owner());
  const Json state = study.ask({}).value();
  EXPECT_EQ(text_of(state, "trials"), "3");
  EXPECT_EQ(state.find("planned"), nullptr);
  EXPECT_EQ(study.ask({.about = About::trials}).value().find("trials")->as_array()->size(), 3U);
  const auto refused = study.command({.what = What::stop, .trial = 0});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::unavailable);
  EXPECT_NE(message(refused).find("no process runs the study"), std::string::npos);
}

/// A process of another user. It is forked before the test has threads: a child of a process with
/// threads may find the allocator's lock held for ever.
class AnotherUser {
 public:
  explicit AnotherUser(const std::string& folder) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel_), 0);
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(channel_[1]);
      return;
    }
    ::close(channel_[0]);
    const bool changed = ::seteuid(65534) == 0;
    char ask = 0;
    while (::recv(channel_[1], &ask, 1, 0) == 1) {
      std::string text = "it is still the same user";
      if (changed) {
        auto study = StudyClient::open(folder);
        text = study ? text_of(study->ask({}).value(), "trials") : study.error().message();
      }
      if (::send(channel_[1], text.data(), text.size(), MSG_NOSIGNAL) <= 0) break;
    }
    ::_exit(0);
  }
  AnotherUser(const AnotherUser&) = delete;
  ~AnotherUser() {
    ::kill(pid_, SIGKILL);
    ::close(channel_[0]);
    ::waitpid(pid_, nullptr, 0);
  }
  /// Returns what the process finds in the folder now: the error's message, or the number of trials.
  std::string finds() const {
    if (::send(channel_[0], "?", 1, MSG_NOSIGNAL) != 1) return "nothing";
    char text[4096];
    pollfd entry{channel_[0], POLLIN, 0};
    if (wait_for({&entry, 1}, 60s) != 1) return "nothing within a minute";
    const ssize_t n = ::recv(channel_[0], text, sizeof text, 0);
    return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "nothing";
  }

 private:
  int channel_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST_F(StudyServerTest, AnotherUserReadsAnIdleStudyAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
  const AnotherUser other(study_);
  {
    const Owner owner(study_);
    const std::string found = other.finds();
    EXPECT_NE(found.find("only its own user may ask it"), std::string::npos) << found;
    EXPECT_NE(found.find("pid " + std::to_string(::getpid())), std::string::npos) << found;
  }
  EXPECT_EQ(other.finds(), "3");
}

TEST_F(StudyServerTest, AnOwnerThatServesNobodyIsNamed) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  const auto study = StudyClient::open(study_);
  ASSERT_FALSE(study.ok());
  EXPECT_EQ(study.error().code(), Code::unavailable);
  EXPECT_NE(study.error().message().find("pid " + std::to_string(::getpid())), std::string::npos);
}

TEST_F(StudyServerTest, ARequestThatMakesNoSenseHarmsNoLaterOne) {
  Owner owner(study_);
  RawClient raw(study_);
  for (const std::string& line : {std::string("hello"), std::string("{}"), std::string("\0\0", 2),
                                  std::string(10'000, '['), std::string("{\"ask\":\"weather\"}")})
    EXPECT_NE(raw.ask(line).find("invalid_argument"), std::string::npos) << line.substr(0, 50);
  EXPECT_NE(raw.ask("{\"ask\":\"state\"}").find("resnet"), std::string::npos);
}

TEST_F(StudyServerTest, RequestsMayArriveInPiecesOrAllAtOnce) {
  Owner owner(study_);
  RawClient raw(study_);
  for (const char c : std::string("{\"ask\":\"trial\",\"from\":2}\n")) raw.send({&c, 1});
  EXPECT_NE(raw.line().value_or("cut").find("\"number\":2"), std::string::npos);
  std::string many;
  for (int i = 0; i < 200; ++i)
    many +=
        R"({"ask":"trial","from":)" + std::to_string(i % 3) + "}\n{\"do\":\"stop\",\"trial\":99}\n";
  raw.send(many);
  ::shutdown(raw.fd(), SHUT_WR);
  for (int i = 0; i < 200; ++i) {
    EXPECT_NE(raw.line().value_or("cut").find("\"number\":" + std::to_string(i % 3)),
              std::string::npos);
    EXPECT_NE(raw.line().value_or("cut").find("does not exist"), std::string::npos);
  }
  EXPECT_FALSE(raw.line());
}

TEST_F(StudyServerTest, ALineWithoutAnEndCutsTheConnection) {
  Owner owner(study_);
  RawClient raw(study_);
  raw.send(std::string(80'000, 'x'));
  EXPECT_NE(raw.line().value_or("cut").find("65536 bytes"), std::string::npos);
  EXPECT_FALSE(raw.line());
  EXPECT_EQ(text_of(client().ask({}).value(), "trials"), "3");
}

TEST_F(StudyServerTest, ClientsThatComeAndGoOrDoNotReadHarmNobody) {
  Owner owner(study_);
  for (int i = 0; i < 100; ++i) {
    RawClient raw(study_);
    raw.send(i % 2 == 0 ? "{\"ask\":\"trials\"}\n{\"do\":\"stop\","
                        : "{\"do\":\"stop\",\"trial\":99}\n");
  }
  RawClient deaf(study_);
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "{\"ask\":\"trials\"}\n";
  pollfd entry{deaf.fd(), POLLOUT, 0};
  while (!many.empty() && wait_for({&entry, 1}, 100ms) == 1) {
    const ssize_t n = ::send(deaf.fd(), many.data(), many.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) break;
    many.erase(0, static_cast<std::size_t>(n));
  }
  EXPECT_EQ(text_of(client().ask({}).value(), "trials"), "3");
}

TEST_F(StudyServerTest, ClientsHaveABound) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  const auto server = StudyServer::open(*store, {.most_clients = 2}).value();
  auto one = std::make_unique<RawClient>(study_);
  RawClient two(study_);
  EXPECT_NE(one->ask("{\"ask\":\"state\"}"), "cut");
  EXPECT_NE(two.ask("{\"ask\":\"state\"}"), "cut");
  const auto refused = client().ask({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::overloaded);
  EXPECT_NE(message(refused).find("2 clients ask this study already"), std::string::npos);
  one.reset();
  EXPECT_TRUE(eventually([&] { return client().ask({}).ok(); }));
}

TEST_F(StudyServerTest, ClientsThatHaveHungUpKeepNobodyOut) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  std::binary_semaphore reached{0}, released{0};
  bool first = true;
  const auto hold_once = [&] {
    if (!std::exchange(first, false)) return;
    reached.release();
    (void)released.try_acquire_for(20s);
  };
  const auto server = StudyServer::open(*store, {.wake = hold_once, .most_clients = 2}).value();
  RawClient one(study_);
  one.send("{\"do\":\"stop\",\"trial\":0}\n");
  ASSERT_TRUE(reached.try_acquire_for(20s));
  for (int i = 0; i < 8; ++i)
    RawClient(study_).send(i % 2 == 0 ? "{\"do\":\"stop\",\"trial\":99}\n" : "{\"ask\":\"sta");
  RawClient late(study_);
  ASSERT_TRUE(late.connected());
  released.release();
  const std::string answer = late.ask("{\"ask\":\"state\"}");
  EXPECT_TRUE(answer != "cut" && answer.find("try again") == std::string::npos) << answer;
}

TEST_F(StudyServerTest, AClientThatAsksNothingIsCutOff) {
  const auto store = StudyStore::open(study_, studies::options()).value();
  const auto server = StudyServer::open(*store, {.idle = 50ms}).value();
  RawClient one(study_);
  EXPECT_FALSE(one.line());
}

}  // namespace
}  // namespace study_server_test
}  // namespace troupe::tune
