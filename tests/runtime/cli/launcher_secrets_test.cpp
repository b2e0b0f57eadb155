// Tests that the launcher of a background cluster keeps its secrets: other processes of the user
// cannot read its memory, and the join tokens are not in it any more.
#include "tests/paths.hpp"
#include "tests/runtime/cli/clusters.hpp"

#include <grp.h>
#include <cerrno>
#include <functional>

namespace troupe::cli {
namespace {

/// Returns whether the text is anywhere in the writable memory of a process.
bool has_in_memory(pid_t pid, const std::string& text) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  std::ifstream memory("/proc/" + std::to_string(pid) + "/mem", std::ios::binary);
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3 || rights[1] != 'w' ||
        end - begin > 256u << 20)
      continue;
    std::string bytes(end - begin, '\0');
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(begin));
    memory.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (says(bytes, text)) return true;
  }
  return false;
}

/// Returns what `work` returns in a child process that is another user without privileges; -1 if it
/// cannot become one.
int as_another_user(const fs::path& folder, const std::function<int()>& work) {
  const auto user = static_cast<uid_t>(800'000 + getpid());
  if (geteuid() == 0 && chown(folder.c_str(), user, user) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const bool is_other =
        geteuid() != 0 || (setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0);
    _exit(is_other && access(paths::command(), X_OK) == 0 ? work() : 255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return code == 255 ? -1 : code;
}

TEST_F(Clusters, ALauncherHasNoTokenInItsMemoryOnceItHasToldThem) {
  const json cluster = start({"--nodes", "1", "--cpus", "1", "--join-tokens", "2"});
  const pid_t launcher = cluster["launcher"];
  ASSERT_EQ(cluster["join_tokens"].size(), 2u);
  if (geteuid() != 0) GTEST_SKIP() << "only root may look into its memory";
  ASSERT_TRUE(has_in_memory(launcher, cluster["file"].get<std::string>()))
      << "its memory can be read";
  for (const json& token : cluster["join_tokens"])
    EXPECT_FALSE(has_in_memory(launcher, token.get<std::string>().substr(8, 100)));
}

TEST_F(Clusters, ALaunchersMemoryIsClosedToProcessesOfItsUserAndControlStillComesBack) {
  const int outcome = as_another_user(folder, [this] {
    const json cluster = start({"--nodes", "1", "--cpus", "1"});
    const pid_t launcher = cluster["launcher"];
    const int memory = open(("/proc/" + std::to_string(launcher) + "/mem").c_str(), O_RDONLY);
    if (memory >= 0 || errno != EACCES) return 1;
    ::kill(cluster["control"]["pid"], SIGKILL);
    const bool serves = eventually([&] {
      const Outcome sum = troupe_command({"list", "nodes"});
      return sum.code == 0 && says(sum.out, "alive");
    });
    const std::string log = "launcher-";
    bool lost = false;
    for (const auto& entry : fs::recursive_directory_iterator(state))
      if (says(entry.path().filename().string(), log)) {
        std::ifstream file(entry.path());
        for (std::string line; std::getline(file, line);) lost = lost || says(line, "is lost");
      }
    return !serves ? 2 : lost ? 3 : troupe_command({"stop"}).code;
  });
  if (outcome < 0) GTEST_SKIP() << "this process may not become another user";
  EXPECT_EQ(outcome, 0);
  EXPECT_TRUE(geteuid() != 0 || chown(folder.c_str(), 0, 0) == 0);
}

}  // namespace
}  // namespace troupe::cli
