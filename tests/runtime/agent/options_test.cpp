/// Tests an agent's environment: the texts that each variable may have, the defaults, and the
/// sentence that refuses every other text.
#include "troupe/runtime/agent/options.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>
#include <map>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

AgentOptions read(const std::map<std::string, std::string>& variables) {
  return read_options(Environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  }));
}

TEST(AgentOptions, hold_the_defaults_without_any_variable) {
  const AgentOptions options = read({});
  EXPECT_FALSE(options.spill_folders);
  EXPECT_TRUE(options.shared_folders.empty());
  EXPECT_EQ(options.spill_bytes, Bytes{});
  EXPECT_EQ(options.spill_patience, 8s);
  EXPECT_EQ(options.node_memory, Bytes{});
  EXPECT_EQ(options.job_bytes, Bytes{});
  EXPECT_EQ(options.lineage, Bytes{64 << 20});
  EXPECT_EQ(default_spill_folders().front(), std::vector<std::string>{"/var/tmp"});
}

TEST(AgentOptions, say_what_each_variable_says) {
  const AgentOptions options = read({{"TROUPE_SPILL", "/a:/b"},
                                     {"TROUPE_SPILL_SHARED", "/c"},
                                     {"TROUPE_SPILL_BYTES", "1G"},
                                     {"TROUPE_SPILL_PATIENCE_MS", "300"},
                                     {"TROUPE_NODE_MEMORY", "2G"},
                                     {"TROUPE_JOB_BYTES", "3M"},
                                     {"TROUPE_LINEAGE", "0"}});
  EXPECT_EQ(options.spill_folders, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(options.shared_folders, std::vector<std::string>{"/c"});
  EXPECT_EQ(options.spill_bytes, Bytes{1 << 30});
  EXPECT_EQ(options.spill_patience, 300ms);
  EXPECT_EQ(options.node_memory, Bytes{std::uint64_t{2} << 30});
  EXPECT_EQ(options.job_bytes, Bytes{3 << 20});
  EXPECT_EQ(options.lineage, Bytes{});
}

TEST(AgentOptions, spill_nothing_when_the_list_of_folders_is_empty) {
  ASSERT_TRUE(read({{"TROUPE_SPILL", ""}}).spill_folders);
  EXPECT_TRUE(read({{"TROUPE_SPILL", ""}}).spill_folders->empty());
}

TEST(AgentOptions, bound_the_patience_by_the_longest_wait_for_memory) {
  EXPECT_EQ(read({{"TROUPE_SPILL_PATIENCE_MS", "0"}}).spill_patience, 0s);
  EXPECT_EQ(read({{"TROUPE_SPILL_PATIENCE_MS", "3600000"}}).spill_patience, 30s);
}

TEST(AgentOptions, refuse_what_is_of_no_use_and_name_the_variable) {
  const std::map<std::string, std::string> advice{
      {"TROUPE_SPILL_BYTES", "give a size such as 512MiB or 2GiB"},
      {"TROUPE_SPILL_PATIENCE_MS", "give a number of milliseconds from 0 to 3600000"},
      {"TROUPE_NODE_MEMORY", "give a size such as 512MiB or 2GiB"},
      {"TROUPE_JOB_BYTES", "give a size such as 512MiB or 2GiB"},
      {"TROUPE_LINEAGE", "give a size such as 512MiB or 2GiB"}};
  for (const auto& [name, words] : advice) try {
      (void)read({{name, "abc"}});
      ADD_FAILURE() << name << " was taken";
    } catch (const InvalidArgument& error) {
      std::string expected = name;
      expected.append(" is 'abc': ").append(words);
      EXPECT_EQ(error.message(), expected);
    }
}

}  // namespace
}  // namespace troupe::agent
