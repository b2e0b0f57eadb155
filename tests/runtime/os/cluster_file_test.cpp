// Tests the cluster file: how it is written and read, and which files are refused.
#include "troupe/runtime/os/cluster_file.hpp"

#include "troupe/runtime/version.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe::os {
namespace {

namespace fs = std::filesystem;

class ClusterFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text = testing::TempDir() + "troupe-files-XXXXXX";
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
    setenv("XDG_RUNTIME_DIR", text.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_RUNTIME_DIR");
    fs::remove_all(folder);
  }

  static ClusterFile sample() {
    ClusterFile file;
    file.cluster = ClusterId::random();
    file.version = std::string(TROUPE_VERSION_TEXT);
    file.protocol = kProtocolVersion;
    file.node = NodeId::random();
    file.node_name = "node-0";
    file.socket_name = "troupe-abc";
    file.control_door = "tcp://127.0.0.1:4000";
    file.nodes = 3;
    file.launcher = getpid();
    file.launched = start_of(getpid());
    file.other_doors = {"troupe-def", "troupe-ghi"};
    return file;
  }
  std::string path() const { return (folder / "c.json").string(); }
  std::string written() const {
    EXPECT_TRUE(write_cluster_file(path(), sample()));
    return path();
  }
  /// Returns the reason why the file is refused.
  std::string refusal(Code code = Code::invalid_argument) const {
    const auto file = read_cluster_file(path());
    EXPECT_FALSE(file.ok());
    if (file.ok()) return "";
    EXPECT_EQ(file.error().code(), code) << file.error().message();
    EXPECT_NE(file.error().message().find(path()), std::string::npos) << file.error().message();
    return file.error().message();
  }
  void replace(const std::string& what, const std::string& with) const {
    std::stringstream text;
    text << std::ifstream(path()).rdbuf();
    std::string all = text.str();
    const auto at = all.find(what);
    ASSERT_NE(at, std::string::npos) << all;
    all.replace(at, what.size(), with);
    std::ofstream(path()) << all;
  }
  fs::path folder;
};

TEST_F(ClusterFileTest, IsReadAsItWasWrittenAndOnlyItsOwners) {
  const ClusterFile sent = sample();
  ASSERT_TRUE(write_cluster_file(path(), sent));
  ASSERT_TRUE(write_cluster_file(path(), sent)) << "and may be replaced";
  struct stat about{};
  ASSERT_EQ(stat(path().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  const ClusterFile got = read_cluster_file(path()).value();
  EXPECT_EQ(got.cluster, sent.cluster);
  EXPECT_EQ(got.node, sent.node);
  EXPECT_EQ(got.node_name, sent.node_name);
  EXPECT_EQ(got.socket_name, sent.socket_name);
  EXPECT_EQ(got.control_door, sent.control_door);
  EXPECT_EQ(got.nodes, sent.nodes);
  EXPECT_EQ(got.launcher, sent.launcher);
  EXPECT_EQ(got.launched, sent.launched);
  EXPECT_EQ(got.other_doors, sent.other_doors);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(ClusterFileTest, AMissingOneSaysHowToStartACluster) {
  EXPECT_NE(refusal(Code::unavailable).find("troupe up"), std::string::npos);
}

TEST_F(ClusterFileTest, OneThatOthersMayReadOrWriteIsRefusedWithTheCure) {
  for (const mode_t mode : {0640u, 0604u, 0620u, 0602u}) {
    written();
    chmod(path().c_str(), mode);
    EXPECT_NE(refusal().find("chmod 600"), std::string::npos);
  }
}

TEST_F(ClusterFileTest, AnotherUsersIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  written();
  ASSERT_EQ(chown(path().c_str(), 65534, 65534), 0);
  EXPECT_NE(refusal().find("65534"), std::string::npos);
}

TEST_F(ClusterFileTest, LinksFoldersAndPipesAreRefusedAtOnce) {
  written();
  fs::rename(path(), folder / "real.json");
  fs::create_symlink(folder / "real.json", path());
  EXPECT_NE(refusal().find("link"), std::string::npos);
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_NE(refusal().find("plain file"), std::string::npos);
  fs::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(refusal().find("plain file"), std::string::npos);
}

TEST_F(ClusterFileTest, MalformedOnesAreRefusedByField) {
  const auto with = [&](const std::string& what, const std::string& instead) {
    written();
    replace(what, instead);
    return refusal();
  };
  EXPECT_NE(with("\"format\": 1", "\"format\": 2").find("format"), std::string::npos);
  EXPECT_NE(with("\"nodes\": 3", "\"nodes\": -3").find("nodes"), std::string::npos);
  EXPECT_NE(with("\"nodes\": 3", "\"nodes\": \"3\"").find("nodes"), std::string::npos);
  EXPECT_NE(with("socketName", "socketname").find("socketName"), std::string::npos);
  EXPECT_NE(with("\"nodeName\": \"node-0\"", "\"nodeName\": 0").find("nodeName"),
            std::string::npos);
  with("{", "[");
  with("}", "");
  written();
  std::ofstream(path()) << std::string(70'000, ' ');
  EXPECT_NE(refusal().find("64 KiB"), std::string::npos);
  std::ofstream(path()) << "";
  refusal();
}

TEST_F(ClusterFileTest, AnotherProtocolIsNamedOnBothSides) {
  written();
  replace("\"protocol\": " + std::to_string(kProtocolVersion), "\"protocol\": 999");
  const std::string why = refusal();
  EXPECT_NE(why.find("999"), std::string::npos);
  EXPECT_NE(why.find("protocol " + std::to_string(kProtocolVersion)), std::string::npos);
}

TEST_F(ClusterFileTest, TheFolderIsOursAlone) {
  const std::string made = make_cluster_folder().value();
  EXPECT_EQ(made, folder.string() + "/troupe");
  struct stat about{};
  ASSERT_EQ(stat(made.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  EXPECT_TRUE(make_cluster_folder().ok()) << "twice is fine";
  chmod(made.c_str(), 0755);
  EXPECT_EQ(make_cluster_folder().error().code(), Code::invalid_argument);
  fs::remove(made);
  fs::create_symlink(folder, made);
  EXPECT_EQ(make_cluster_folder().error().code(), Code::invalid_argument);
  setenv("XDG_RUNTIME_DIR", "not/absolute", 1);
  EXPECT_EQ(cluster_folder(), "/tmp/troupe-" + std::to_string(geteuid()));
}

TEST_F(ClusterFileTest, OnlyClustersThatRunAreFoundAndTheFilesOfOthersGo) {
  ASSERT_TRUE(make_cluster_folder().ok());
  const ClusterFile alive = sample();
  ASSERT_TRUE(write_cluster_file(default_cluster_file(alive.cluster), alive));
  ClusterFile dead = sample();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  dead.launcher = child;
  dead.launched = start_of(child);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(write_cluster_file(default_cluster_file(dead.cluster), dead));
  ClusterFile replaced = sample();
  replaced.launched -= 1;  // a later process has got the launcher's process id
  ASSERT_TRUE(write_cluster_file(default_cluster_file(replaced.cluster), replaced));
  const auto found = running_clusters();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].file.cluster, alive.cluster);
  EXPECT_TRUE(fs::exists(default_cluster_file(alive.cluster)));
  EXPECT_FALSE(fs::exists(default_cluster_file(dead.cluster)));
  EXPECT_FALSE(fs::exists(default_cluster_file(replaced.cluster)));
}

}  // namespace
}  // namespace troupe::os
