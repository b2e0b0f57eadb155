// Tests the folder of logs: where it is, what is refused, and what stays.
#include "troupe/runtime/os/state_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::os {
namespace {

namespace fs = std::filesystem;

class StateFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string text = testing::TempDir() + "troupe-state-XXXXXX";
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
  }
  void TearDown() override { fs::remove_all(folder); }

  Result<std::string> open(const std::map<std::string, std::string>& variables,
                           const std::string& given = "") {
    return open_state_folder(given, Environment([&](const char* name) {
                               const auto at = variables.find(name);
                               return at == variables.end() ? nullptr : at->second.c_str();
                             }));
  }
  void expect_refused(const Result<std::string>& result, const std::string& words) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::invalid_argument);
    EXPECT_NE(result.error().message().find(words), std::string::npos) << result.error().message();
  }
  std::string folder;
};

TEST_F(StateFolder, IsTheFirstOfItsPlaces) {
  const std::string state = folder + "/state", home = folder + "/home";
  EXPECT_EQ(open({{"XDG_STATE_HOME", state}, {"HOME", home}}, folder + "/own/").value(),
            folder + "/own");
  EXPECT_EQ(open({{"XDG_STATE_HOME", state}, {"HOME", home}}).value(), state + "/troupe");
  EXPECT_EQ(open({{"XDG_STATE_HOME", "relative"}, {"HOME", home}}).value(),
            home + "/.local/state/troupe");
  EXPECT_EQ(open({}).value(), "/var/tmp/troupe-" + std::to_string(geteuid()));
  EXPECT_EQ(fs::status(state + "/troupe").permissions(), fs::perms::owner_all);
}

TEST_F(StateFolder, RefusesALinkAFileAndAFolderOpenToOthers) {
  fs::create_directory(folder + "/real");
  fs::create_directory_symlink(folder + "/real", folder + "/link");
  expect_refused(open({}, folder + "/link"), "is a link");
  std::ofstream(folder + "/file") << "x";
  expect_refused(open({}, folder + "/file"), "is no folder");
  ASSERT_EQ(chmod((folder + "/real").c_str(), 0755), 0);
  expect_refused(open({}, folder + "/real"), "chmod 700 " + folder + "/real");
  if (geteuid() != 0) expect_refused(open({}, "/"), "belongs to user 0");
}

TEST_F(StateFolder, RefusesAFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(folder + "/other");
  ASSERT_EQ(chown((folder + "/other").c_str(), 1234, 1234), 0);
  expect_refused(open({}, folder + "/other"), "belongs to user 1234");
}

TEST_F(StateFolder, KeepsTenEndedClustersAndThoseInUse) {
  const std::string state = open({}, folder + "/state").value();
  std::vector<ClusterId> ids;
  const auto make = [&](std::int64_t age) {
    ids.push_back(ClusterId::random());
    const std::string path = ClusterFolder::open(state, ids.back()).value().path();
    std::ofstream(path + "/file") << "x";
    const timespec times[2] = {{2'000'000'000 - age, 0}, {2'000'000'000 - age, 0}};
    utimensat(AT_FDCWD, (path + "/lock").c_str(), times, 0);
    return path;
  };
  const std::string oldest = make(1000);
  const auto used = ClusterFolder::open(state, ids.back()).value();
  const timespec times[2] = {{1, 0}, {1, 0}};
  utimensat(AT_FDCWD, (oldest + "/lock").c_str(), times, 0);
  std::vector<std::string> ended;
  for (std::int64_t i = 0; i < 13; ++i) ended.push_back(make(i));
  fs::create_directory(state + "/something-else");
  prune_state(state);
  EXPECT_TRUE(fs::exists(oldest)) << "a cluster uses it";
  EXPECT_TRUE(fs::exists(state + "/something-else"));
  for (std::size_t i = 0; i < ended.size(); ++i)
    EXPECT_EQ(fs::exists(ended[i]), i < kKeptClusters) << i;
}

TEST_F(StateFolder, SharesAGibibyteAmongTheNodesOfAHost) {
  EXPECT_LE(log_bytes_of_node(folder, 1), kLogBytesOfHost);
  EXPECT_NEAR(static_cast<double>(log_bytes_of_node(folder, 4)),
              static_cast<double>(log_bytes_of_node(folder, 1)) / 4, 1e6);
}

}  // namespace
}  // namespace troupe::os
