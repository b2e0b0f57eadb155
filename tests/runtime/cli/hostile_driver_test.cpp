// Tests a driver with a valid connection that sends messages it may not send, and random ones.
// The agent must go on to serve other processes.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"
#include "tests/runtime/cli/raw_driver.hpp"
#include "tests/runtime/wire/hostile.hpp"
#include "tests/runtime/wire/samples.hpp"

#include "troupe/runtime/agent/authority.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/os/cluster_file.hpp"
#include "troupe/runtime/os/role.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

namespace troupe::cli {
namespace {

namespace samples = wire::samples;

/// The agents of these tests start zygotes from cli_program. If they started them from this
/// program, each zygote would run these tests, and so on.
const bool kIsNoZygote = [] {
  if (os::inherited().role == os::Role::driver) return true;
  std::fprintf(stderr, "cli_test was started as a process of a cluster, and ends\n");
  _exit(98);
}();

Blob blob_of(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

class HostileDriver : public Clusters {
 protected:
  void begin(const std::string& nodes = "1") {
    ASSERT_TRUE(kIsNoZygote);
    cluster = start({"--nodes", nodes, "--cpus", "1"});
    const auto file = os::read_cluster_file(cluster["file"].get<std::string>());
    ASSERT_TRUE(file) << file.error().message();
    door = file->socket_name;
  }
  std::unique_ptr<RawDriver> driver() const {
    return std::make_unique<RawDriver>(door, paths::cli_program());
  }
  /// Returns the node's free CPUs after the agent has read all messages of the driver.
  static std::int64_t cpus_free(RawDriver& driver) {
    driver.say(wire::ListNodes{1});
    const auto nodes = driver.hear<wire::Nodes>();
    return nodes && !nodes->rows.empty() ? nodes->rows.front().cpus_free : -1;
  }
  std::string log() const {
    std::string all;
    for (const auto& entry : fs::recursive_directory_iterator(state)) {
      if (entry.path().extension() != ".log") continue;
      std::ifstream file(entry.path());
      all.append(std::istreambuf_iterator<char>(file), {});
    }
    return all;
  }
  /// Waits until the log has one of the texts. A thread of the agent writes it.
  bool is_logged(const std::vector<std::string>& texts) const {
    return eventually([&] {
      const std::string all = log();
      return std::any_of(texts.begin(), texts.end(),
                         [&](const std::string& text) { return says(all, text); });
    });
  }
  json cluster;
  std::string door;
};

TEST_F(HostileDriver, ReturnsNoLeaseOfAnother) {
  begin();
  auto victim = driver(), hostile = driver();
  ASSERT_TRUE(victim->is_welcome() && hostile->is_welcome());
  wire::RequestLease request;
  request.key = 1;
  request.backlog = 1;
  victim->say(request);
  const auto granted = victim->hear<wire::LeaseGranted>();
  ASSERT_TRUE(granted);
  ASSERT_EQ(cpus_free(*hostile), 0);
  hostile->say(wire::LeaseReturned{granted->lease});
  EXPECT_EQ(cpus_free(*hostile), 0);
  EXPECT_TRUE(is_logged({"LeaseReturned about what is another"})) << log();
  victim->say(wire::LeaseReturned{granted->lease});
  EXPECT_EQ(cpus_free(*victim), 10'000) << "it may itself";
  EXPECT_FALSE(hostile->is_cut_off_now());
}

TEST_F(HostileDriver, MakesNoValueOfAnotherAndDropsNoRefOfIts) {
  begin();
  auto victim = driver(), hostile = driver();
  ASSERT_TRUE(victim->is_welcome() && hostile->is_welcome());
  const ObjectId object{11, 1}, pending{11, 2};
  const Blob text = blob_of("the value");
  wire::Value value;
  value.kind = wire::Value::Kind::inline_bytes;
  value.payload_size = static_cast<std::uint32_t>(text.size());
  victim->say(wire::Promote{object, value}, text);
  victim->say(wire::Promote{pending, {}});
  ASSERT_EQ(cpus_free(*victim), 10'000);
  const Blob lie = blob_of("other text");
  hostile->say(wire::Fulfil{pending, value}, lie);
  hostile->say(wire::Promote{pending, value}, lie);
  hostile->say(wire::Rebuilt{object, value}, lie);
  hostile->say(wire::Hold{object, victim->index(), -1});
  hostile->say(wire::Hold{object, 0, 1});
  hostile->say(wire::Hold{object, 1'000'000, 1});
  wire::CreateActor actor;
  actor.actor = ActorId{5, 5};
  actor.lifetime = object;
  actor.request = 77;
  actor.creation.results = 1;
  hostile->say(actor);
  const auto refused = hostile->hear<wire::FoundActor>();
  ASSERT_TRUE(refused && refused->error);
  EXPECT_EQ(refused->request, 77u);
  ASSERT_EQ(cpus_free(*hostile), 10'000);
  victim->say(wire::Fulfil{pending, value}, text);
  for (const ObjectId one : {object, pending}) {
    victim->say(wire::Await{one});
    Blob payload;
    const auto ready = victim->hear<wire::Ready>(&payload);
    ASSERT_TRUE(ready);
    EXPECT_EQ(ready->object, one);
    EXPECT_EQ(payload, text);
  }
  for (const char* word : {"Fulfil", "Promote", "Rebuilt", "Hold", "CreateActor"})
    EXPECT_TRUE(is_logged({std::string("said ") + word, "refused, 4 so far"})) << word << "\n"
                                                                               << log();
}

TEST_F(HostileDriver, AsksControlForNothingThatChangesTheCluster) {
  begin();
  auto hostile = driver();
  ASSERT_TRUE(hostile->is_welcome());
  const json before = rows("nodes");
  control::DrainRequest drain;
  drain.node = NodeId::parse(before[0]["id"].get<std::string>()).value_or(NodeId{});
  control::KeyValueRequest write;
  write.verb = control::KeyValueRequest::Verb::put;
  write.key = "k";
  control::KillActor kill;
  std::uint64_t request = 0;
  for (const control::ToControl& question :
       std::vector<control::ToControl>{drain, write, control::NameObject{}, kill}) {
    wire::Inquire ask_control;
    ask_control.request = ++request;
    hostile->say(ask_control, control::encode(question));
    const auto answer = hostile->hear<wire::Answer>();
    ASSERT_TRUE(answer && answer->error) << "question " << request;
    EXPECT_EQ(answer->error->code, Code::invalid_argument) << answer->error->message;
  }
  wire::Inquire list;
  list.request = 9;
  hostile->say(list, control::encode(control::ToControl(control::ListRequest{})));
  const auto answer = hostile->hear<wire::Answer>();
  ASSERT_TRUE(answer) << "what changes nothing is answered";
  EXPECT_FALSE(answer->error);
  EXPECT_EQ(rows("nodes")[0]["state"], "alive");
}

TEST_F(HostileDriver, ReadsNoLogOfAnotherJob) {
  begin();
  ASSERT_EQ(troupe_command({"run", paths::cli_program(), "one_line"}).code, 0);
  auto hostile = driver();
  ASSERT_TRUE(hostile->is_welcome());
  wire::Inquire question;
  question.request = 1;
  question.about = wire::Inquire::About::logs;
  for (const json& job : rows("jobs"))
    if (job["state"] != "running")
      question.logs.job = JobId::parse(job["id"].get<std::string>()).value_or(JobId{});
  ASSERT_TRUE(question.logs.job);
  hostile->say(question);
  const auto answer = hostile->hear<wire::Answer>();
  ASSERT_TRUE(answer && answer->error);
  EXPECT_EQ(answer->error->code, Code::invalid_argument) << answer->error->message;
}

TEST_F(HostileDriver, MayNotAskForListsOfTheCluster) {
  begin();
  auto hostile = driver();
  ASSERT_TRUE(hostile->is_welcome());
  wire::Inquire question;
  question.request = 1;
  question.about = wire::Inquire::About::rows;
  question.rows.limit = 10;
  hostile->say(question);
  const auto answer = hostile->hear<wire::Answer>();
  ASSERT_TRUE(answer && answer->error);
  EXPECT_EQ(answer->error->code, Code::invalid_argument) << answer->error->message;
}

TEST_F(HostileDriver, StopsNoJob) {
  begin();
  auto victim = driver(), hostile = driver();
  ASSERT_TRUE(victim->is_welcome() && hostile->is_welcome());
  wire::Inquire question;
  question.request = 1;
  question.about = wire::Inquire::About::stop;
  question.stop = {victim->job(), "nobody"};
  hostile->say(question);
  const auto answer = hostile->hear<wire::Answer>();
  ASSERT_TRUE(answer && answer->error);
  EXPECT_EQ(answer->error->code, Code::invalid_argument) << answer->error->message;
  EXPECT_EQ(cpus_free(*victim), 10'000) << "it goes on";
}

TEST_F(HostileDriver, AnswersThatNobodyAskedForAreDropped) {
  begin();
  auto hostile = driver();
  ASSERT_TRUE(hostile->is_welcome());
  for (const std::uint64_t request :
       {std::uint64_t{0}, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    wire::GiveRows rows;
    rows.request = request;
    rows.bytes = ~std::uint64_t{0};
    hostile->say(rows);
  }
  EXPECT_EQ(rows("nodes")[0]["state"], "alive");
}

TEST_F(HostileDriver, KillsNoActorOfAnotherJob) {
  begin();
  Child keeper({paths::command(), "run", paths::cli_program(), "hold"});
  ASSERT_TRUE(says(keeper.read_until("7\n"), "7\n"));
  auto hostile = driver();
  ASSERT_TRUE(hostile->is_welcome());
  hostile->say(wire::FindActor{1, "keeper", ""});
  const auto found = hostile->hear<wire::FoundActor>();
  ASSERT_TRUE(found && found->found);
  hostile->say(wire::WatchActor{found->actor});
  ASSERT_TRUE(hostile->hear<wire::ActorUpdate>());
  for (const bool may_restart : {false, true}) {
    hostile->say(wire::WatchActor{found->actor});
    hostile->say(wire::KillActor{found->actor, may_restart});
    std::optional<wire::ActorUpdate> update;
    do update = hostile->hear<wire::ActorUpdate>();
    while (update && update->state != wire::ActorState::dead);
    ASSERT_TRUE(update && update->error) << "whoever waits for its end is told why none comes";
    EXPECT_EQ(update->error->code, Code::invalid_argument) << update->error->message;
    EXPECT_EQ(rows("actors")[0]["state"], "alive");
  }
  keeper.close_input();
  EXPECT_EQ(keeper.finish(0), 0);
}

TEST_F(HostileDriver, IsCutOffWithTheFirstWordOfAnotherKindOfProcess) {
  begin();
  const std::vector<wire::NodeMessage> words{wire::Blocked{},        wire::Pace{},
                                             wire::Hello{},          wire::ActorCreated{},
                                             wire::MemoryPressure{}, wire::Shutdown{}};
  for (const wire::NodeMessage& word : words) {
    auto hostile = driver();
    ASSERT_TRUE(hostile->is_welcome());
    if (std::holds_alternative<wire::Shutdown>(word)) break;  // a driver may send this one
    hostile->say(word);
    EXPECT_TRUE(hostile->is_cut_off()) << agent::name_of(word);
  }
  EXPECT_EQ(troupe_command({"run", paths::cli_program(), "sum", "200"}).out, "2646700\n");
}

TEST_F(HostileDriver, HasOneJobHoweverOftenItSaysHello) {
  begin();
  {
    auto hostile = driver();
    wire::Hello again;
    again.protocol = kProtocolVersion;
    again.program = paths::cli_program();
    for (int i = 0; i < 3; ++i) hostile->say_hello(again);
    EXPECT_TRUE(hostile->is_cut_off());
  }
  EXPECT_TRUE(eventually([] {
    const json jobs = rows("jobs");
    return std::none_of(jobs.begin(), jobs.end(),
                        [](const json& job) { return job["state"] == "running"; });
  })) << rows("jobs");
}

// --- random messages

/// Replaces random numbers by numbers that mean something to the agent. Indices of processes,
/// leases and slots are small there, and ids are those of a few objects.
struct Meaningful {
  Random& random;
  const std::vector<ObjectId>& objects;

  template <class T>
  void operator()(const char*, T& member) {
    touch(member);
  }
  template <class T>
  std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>> touch(T& n) {
    if (random.chance(0.7)) n = static_cast<T>(random.below(24));
    if (random.chance(0.1)) n = static_cast<T>(0) - n;
  }
  void touch(bool&) {}
  void touch(std::string&) {}
  template <class T>
  std::enable_if_t<std::is_enum_v<T>> touch(T&) {}
  template <class T>
  void touch(std::shared_ptr<T>&) {}
  template <class Tag>
  void touch(Number<Tag>& number) {
    touch(number.value);
  }
  template <class Tag>
  void touch(Id<Tag>& id) {
    const ObjectId one = objects[random.below(objects.size())];
    if (random.chance(0.8)) id = {one.high, one.low};
  }
  template <class A, class B>
  void touch(std::pair<A, B>& pair) {
    touch(pair.second);
  }
  template <class T>
  void touch(std::vector<T>& list) {
    for (T& item : list) touch(item);
  }
  template <class T>
  void touch(std::optional<T>& maybe) {
    maybe.reset();
    if (random.chance(0.5)) touch(maybe.emplace());
  }
  void touch(wire::Value& value) {
    touch(value.location);
    touch(value.refs);
    touch(value.forward);
  }
  void touch(wire::FunctionKey&) {}
  template <class T>
  std::enable_if_t<std::is_class_v<T>> touch(T& message) {
    samples::each(*this, message);
  }
};

/// Returns whether a message of this kind ends its sender, or nearly always does.
bool is_last(std::size_t kind) {
  using agent::authority::kind_of;
  const wire::NodeMessage* any = nullptr;
  return !agent::authority::allows(agent::authority::kNodeTable[kind], agent::Talker::driver) ||
         kind == kind_of<wire::Shutdown>(any) || kind == kind_of<wire::StoreAttached>(any) ||
         kind == kind_of<wire::ExtentMapped>(any);
}

/// Returns a random message, mostly of a kind that a driver may send, now and then of any other
/// kind.
wire::NodeMessage random_word(Random& random, const std::vector<ObjectId>& objects,
                              std::size_t payload) {
  std::size_t kind = 0;
  do kind = random.below(std::variant_size_v<wire::NodeMessage>);
  while (is_last(kind) && !random.chance(0.003));
  wire::NodeMessage word = samples::random_node(random, payload, kind);
  Meaningful meaningful{random, objects};
  if (!std::holds_alternative<wire::Hello>(word) && random.chance(0.9))
    std::visit([&](auto& one) { samples::each(meaningful, one); }, word);
  if (auto* demand = std::get_if<wire::RequestLease>(&word)) {
    demand->demand.cpus = std::abs(demand->demand.cpus / 2);
    demand->demand.gpus = std::abs(demand->demand.gpus / 2);
  }
  if (auto* create = std::get_if<wire::CreateActor>(&word)) {
    create->demand.cpus = std::abs(create->demand.cpus / 2);
    create->demand.gpus = std::abs(create->demand.gpus / 2);
  }
  return word;
}

/// Plays one life of a hostile driver: until it is cut off or has sent 2,000 messages. Returns
/// their number.
int talk(RawDriver& hostile, std::uint64_t seed, const std::vector<ObjectId>& objects) {
  Random random(seed);
  hostile.say(wire::StoreAttached{});
  int words = 0;
  for (; words < 2000 && !hostile.is_cut_off_now(); ++words) {
    const Blob payload = samples::random_bytes(random, random.below(300));
    Blob frame = hostile.frame_of(random_word(random, objects, payload.size()), payload);
    if (random.chance(0.002)) samples::mutate(random, frame);
    hostile.say_bytes(frame, random.chance(0.1));
  }
  return words;
}

TEST_F(HostileDriver, WhateverItSaysTheOthersAreServed) {
  begin("2");
  Child keeper({paths::command(), "run", paths::cli_program(), "hold"});
  ASSERT_TRUE(says(keeper.read_until("7\n"), "7\n"));
  auto victim = driver();
  ASSERT_TRUE(victim->is_welcome());
  std::vector<ObjectId> objects;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    const Blob text = blob_of("value " + std::to_string(i));
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    value.payload_size = static_cast<std::uint32_t>(text.size());
    objects.push_back({77, i});
    victim->say(wire::Promote{objects.back(), value}, text);
  }
  ASSERT_GE(cpus_free(*victim), 0);
  const char* given = std::getenv("TROUPE_HOSTILE_SEED");
  std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10)
                                        : static_cast<std::uint64_t>(getpid()) * 1000;
  const auto until = std::chrono::steady_clock::now() + (given != nullptr ? 0s : 5s);
  int lives = 0;
  do {
    std::printf("TROUPE_HOSTILE_SEED=%" PRIu64, seed++);
    std::fflush(stdout);
    auto hostile = driver();
    ASSERT_TRUE(hostile->is_welcome()) << "the agent has ended, or serves nobody: " << log();
    std::printf(": %d words\n", talk(*hostile, seed - 1, objects));
    if (++lives % 8 == 1) {
      const Outcome sum = troupe_command({"run", paths::cli_program(), "sum", "200"});
      ASSERT_EQ(sum.out, "2646700\n") << sum.err << log();
    }
  } while (std::chrono::steady_clock::now() < until);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    victim->say(wire::Await{objects[i]});
    Blob payload;
    const auto ready = victim->hear<wire::Ready>(&payload);
    ASSERT_TRUE(ready);
    EXPECT_EQ(payload, blob_of("value " + std::to_string(i + 1)));
  }
  EXPECT_TRUE(runs(cluster["nodes"][0]["pid"])) << "the agent of before";
  const json actors = rows("actors");
  EXPECT_TRUE(std::any_of(actors.begin(), actors.end(), [](const json& actor) {
    return actor["name"] == "keeper" && actor["state"] == "alive";
  })) << actors;
  keeper.close_input();
  EXPECT_EQ(keeper.finish(0), 0);
}

}  // namespace
}  // namespace troupe::cli
