// Tests what a process reads from its launcher's variables.
#include "troupe/actors/collective/internal/launch.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace troupe::collective::internal {
namespace {

using Values = std::map<std::string, std::string>;

Launch read(const Values& values) {
  return read_launch(Environment([&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  }));
}

std::string refusal(const Values& values) {
  try {
    (void)read(values);
  } catch (const InvalidArgument& e) {
    return e.message();
  }
  return "";
}

/// Returns `base` with one value changed; an empty value removes the variable.
Values with(Values base, const std::string& name, const std::string& value) {
  base[name] = value;
  if (value.empty()) base.erase(name);
  return base;
}

const Values kTorchrun{{"RANK", "1"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "127.0.0.2"},
                       {"MASTER_PORT", "29500"}};
const Values kSlurm{{"SLURM_PROCID", "2"},  {"SLURM_STEP_NUM_TASKS", "3"},
                    {"SLURM_NTASKS", "9"},  {"SLURM_JOB_ID", "1000"},
                    {"SLURM_STEP_ID", "1"}, {"SLURM_STEP_NUM_NODES", "1"}};

TEST(Launch, TorchrunsVariablesAreRead) {
  const Launch launch = read(kTorchrun);
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.world, 4);
  EXPECT_EQ(launch.host, "127.0.0.2");
  EXPECT_EQ(launch.port, 29500);
}

TEST(Launch, LocalVariablesMayBeMissing) {
  EXPECT_EQ(read(with(with(kTorchrun, "LOCAL_RANK", ""), "LOCAL_WORLD_SIZE", "")).world, 4);
}

TEST(Launch, OneRankAloneNeedsNoAddress) {
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world, 1);
}

TEST(Launch, APortOfTheAgentIsLeftToIt) {
  const Launch launch = read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "True"));
  EXPECT_EQ(launch.port, 19500);
  EXPECT_EQ(launch.port_variable, "TROUPE_MASTER_PORT");
  EXPECT_EQ(read(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE", "False")).port, 29500);
  for (int port = 1; port < 65'536; ++port) {
    ASSERT_NE(agent_port(port), port);
    ASSERT_GE(agent_port(port), 10'000);
    ASSERT_LE(agent_port(port), 29'999);
  }
}

TEST(Launch, APortOfTroupesOwnOverridesTheOthers) {
  EXPECT_EQ(read(with(kTorchrun, "TROUPE_MASTER_PORT", "7000")).port, 7000);
  EXPECT_EQ(read(with(kSlurm, "TROUPE_MASTER_PORT", "7000")).port, 7000);
}

TEST(Launch, SlurmsVariablesAreRead) {
  const Launch launch = read(kSlurm);
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.world, 3) << "tasks of the step, not of the job";
  EXPECT_EQ(launch.host, "127.0.0.1");
  EXPECT_EQ(launch.port, 61'440 + (1000 * 16 + 1) % 4096);
  EXPECT_EQ(read(with(kSlurm, "SLURM_STEP_NUM_TASKS", "")).world, 9);
  EXPECT_EQ(read(with(kSlurm, "MASTER_PORT", "29500")).port, 29500);
}

TEST(Launch, TorchrunsVariablesComeBeforeSlurms) {
  Values both = kTorchrun;
  both.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(read(both).world, 4);
}

TEST(Launch, StartsOfDifferentJobsDiffer) {
  const auto job = [](const char* id, const char* restarts) {
    return read(with(with(kTorchrun, "TORCHELASTIC_RUN_ID", id), "TORCHELASTIC_RESTART_COUNT",
                     restarts))
        .job;
  };
  EXPECT_EQ(job("a", "0"), job("a", "0"));
  EXPECT_NE(job("a", "0"), job("b", "0"));
  EXPECT_NE(job("a", "0"), job("a", "1"));
  EXPECT_NE(job("a", "10"), job("a1", "0"));
  EXPECT_NE(read(kSlurm).job, read(with(kSlurm, "SLURM_STEP_ID", "2")).job);
}

TEST(Launch, AMissingVariableIsNamed) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    EXPECT_EQ(refusal(with(kTorchrun, name, "")).find(std::string(name) + " is not set: "), 0u)
        << name;
  EXPECT_EQ(refusal(with(with(kSlurm, "SLURM_STEP_NUM_TASKS", ""), "SLURM_NTASKS", ""))
                .find("SLURM_NTASKS is not set"),
            0u);
  EXPECT_EQ(refusal(with(kSlurm, "SLURM_JOB_ID", "")).find("SLURM_JOB_ID is not set"), 0u);
}

TEST(Launch, AWrongValueIsNamedWithWhatIsRight) {
  EXPECT_EQ(refusal(with(kTorchrun, "RANK", "4")), "RANK is '4' and must be a number from 0 to 3");
  const std::map<std::string, std::vector<std::string>> wrong{
      {"RANK", {"-1", "4", "one", "1x", " 1", "99999999999"}},
      {"WORLD_SIZE", {"0", "-4", "1025", "4.0", "four"}},
      {"LOCAL_RANK", {"4", "-1", "x"}},
      {"LOCAL_WORLD_SIZE", {"0", "5", "x"}},
      {"MASTER_PORT", {"0", "65536", "http"}},
      {"TROUPE_MASTER_PORT", {"0", "65536", "x"}}};
  for (const auto& [name, values] : wrong)
    for (const std::string& value : values) {
      const std::string why = refusal(with(kTorchrun, name, value));
      EXPECT_TRUE(why.starts_with(name) && why.find(" is '" + value + "' and must") != why.npos)
          << name << "=" << value << ": " << why;
    }
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
                           "SLURM_JOB_ID", "SLURM_STEP_ID"})
    EXPECT_EQ(refusal(with(kSlurm, name, "x")).find(std::string(name) + " is 'x'"), 0u) << name;
}

TEST(Launch, RanksOnSeveralHostsAreRefused) {
  EXPECT_EQ(refusal(with(kTorchrun, "LOCAL_WORLD_SIZE", "2")),
            "LOCAL_WORLD_SIZE is 2 and WORLD_SIZE 4: all ranks must be on one host, so start "
            "torchrun with --nnodes=1");
  EXPECT_EQ(refusal(with(kSlurm, "SLURM_STEP_NUM_NODES", "2")),
            "SLURM_STEP_NUM_NODES is 2: all ranks must be on one host, so start srun with "
            "--nodes=1");
}

}  // namespace
}  // namespace troupe::collective::internal
