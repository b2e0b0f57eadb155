// Tests `troupe tune list`, `troupe tune show` and `troupe tune doctor`.
#include "command.hpp"

#include "troupe/tune/study/study_store.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace troupe::cli {
namespace {

using nlohmann::json;

class StudyVerbs : public testing::Test {
 protected:
  ~StudyVerbs() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  std::unique_ptr<tune::StudyStore> open(const std::string& name) const {
    tune::StudyStoreOptions options;
    options.free_space = [] { return Bytes{1ull << 40}; };
    return tune::StudyStore::open(root_ + "/" + name, options).value();
  }
  void make(const std::string& name) const {
    tune::StudyBatch batch{.first_event = 1, .events = {"{}", "{}"}};
    batch.meta = R"({"schema":3,"name":"resnet","metric":"accuracy","goal":"maximize"})";
    batch.trials = {{0, R"({"state":"completed","step":9,"score":0.5,"params":{"lr":0.1}})"},
                    {1, R"({"state":"running","step":3,"score":0.75,"params":{"lr":0.2}})"},
                    {2, R"({"state":"waiting","score":null})"}};
    ASSERT_TRUE(open(name)->write(batch).ok());
  }
  static json ask(const std::vector<std::string>& arguments, int code = 0) {
    std::vector<std::string> all = arguments;
    all.emplace_back("--json");
    const Outcome o = troupe_command(all);
    EXPECT_EQ(o.code, code) << o.out << o.err;
    return json::parse(o.out);
  }

  std::string root_ = [] {
    std::string name = testing::TempDir() + "troupe_studies_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

TEST_F(StudyVerbs, ShowHasTheTrialsAndTheBest) {
  make("a");
  const json study = ask({"tune", "show", root_ + "/a"});
  EXPECT_EQ(study.at("meta").at("name"), "resnet");
  EXPECT_EQ(study.at("events"), 2);
  EXPECT_EQ(study.at("best"), 1);
  ASSERT_EQ(study.at("trials").size(), 3u);
  EXPECT_EQ(study.at("trials")[0].at("params").at("lr"), 0.1);
  const Outcome people = troupe_command({"tune", "show", root_ + "/a"});
  EXPECT_EQ(people.code, 0);
  EXPECT_NE(people.out.find("3 trials, 2 events, best accuracy 0.75 (trial 1)"), std::string::npos)
      << people.out;
  EXPECT_NE(people.out.find("lr=0.2"), std::string::npos) << people.out;
  EXPECT_EQ(troupe_command({"tune", "show", root_ + "/b"}).code, 2);
}

TEST_F(StudyVerbs, ListNamesStudiesThatRunAndSuchAsCannotBeRead) {
  make("a");
  make("b");
  make("c");
  std::filesystem::remove(root_ + "/b/synced");
  std::filesystem::create_directory(root_ + "/other");
  const auto owner = open("c");
  const json studies = ask({"tune", "list", root_}).at("studies");
  ASSERT_EQ(studies.size(), 3u);
  EXPECT_EQ(studies[0].at("state"), "idle");
  EXPECT_EQ(studies[0].at("trials"), 3);
  EXPECT_EQ(studies[1].at("state"), "unreadable");
  EXPECT_EQ(studies[2].at("state"), "running");
  EXPECT_EQ(studies[2].at("owner").at("pid"), ::getpid());
  const Outcome o = troupe_command({"tune", "show", root_ + "/c"});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("pid " + std::to_string(::getpid())), std::string::npos) << o.err;
}

TEST_F(StudyVerbs, DoctorSavesWhatCanBeRead) {
  make("a");
  std::filesystem::remove(root_ + "/a/synced");
  EXPECT_EQ(troupe_command({"tune", "show", root_ + "/a"}).code, 4);
  const std::string to = root_ + "/saved.jsonl";
  const json seen = ask({"tune", "doctor", root_ + "/a", "--to", to});
  EXPECT_EQ(seen.at("damaged"), true);
  EXPECT_EQ(seen.at("records").at("event"), 2);
  EXPECT_EQ(seen.at("missing_events"), 0);
  std::ifstream in(to);
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) EXPECT_TRUE(json::accept(line)) << line;
  EXPECT_EQ(lines, 6);
  const Outcome people = troupe_command({"tune", "doctor", root_ + "/a"});
  EXPECT_NE(people.out.find("Can be read: 2 events, 1 meta, 3 trials."), std::string::npos)
      << people.out;
}

}  // namespace
}  // namespace troupe::cli
