#include "train/peer.hpp"

#include "tools.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

extern char** environ;

namespace troupe::bench {
namespace {

std::string program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "train_step").string();
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

/// Returns a port derived from the process's id, since a free port cannot be reserved for another
/// process.
std::string port() {
  return std::to_string(20000 + getpid() % 20000);
}

}  // namespace

StepPeer::StepPeer(const std::string& shape, int threads, int first_cpu,
                   const std::vector<std::string>& more,
                   const std::vector<std::string>& environment) {
  int in[2], out[2];
  expect(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "a pipe");
  std::vector<std::string> words{program(), shape, std::to_string(threads),
                                 std::to_string(first_cpu)};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  const int failed = posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                                 pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
  expect(failed == 0 && to_ != nullptr && from_ != nullptr, "train_step beside this program");
}

StepPeer::~StepPeer() {
  std::fclose(to_);
  std::fclose(from_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string StepPeer::line() {
  char text[256];
  if (std::fgets(text, sizeof text, from_) == nullptr)
    throw std::runtime_error("train_step ended before it answered");
  return text;
}

void StepPeer::await_ready() {
  if (!ready_) line();
  ready_ = true;
}

void StepPeer::begin(int steps) {
  await_ready();
  std::fprintf(to_, "%d\n", steps);
  std::fflush(to_);
}

double StepPeer::end() {
  return std::strtod(line().c_str(), nullptr) * 1e-3;
}

StepRanks::StepRanks(const std::string& shape, int ranks, const std::string& mesh, int micro) {
  const std::string size = std::to_string(ranks);
  for (int rank = 0; rank < ranks; ++rank)
    ranks_.push_back(std::make_unique<StepPeer>(
        shape, 1, rank, std::vector<std::string>{std::to_string(micro), mesh},
        std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + size,
                                 "LOCAL_WORLD_SIZE=" + size, "LOCAL_RANK=" + std::to_string(rank),
                                 "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port()}));
  for (auto& rank : ranks_) rank->await_ready();
}

double StepRanks::measure(int steps) {
  for (auto& rank : ranks_) rank->begin(steps);
  double slowest = 0;
  for (auto& rank : ranks_) slowest = std::max(slowest, rank->end());
  return slowest;
}

}  // namespace troupe::bench
