// Tests how the command line reads and prints sizes, pairs and ages.
#include "troupe/runtime/cli/verbs.hpp"

#include <gtest/gtest.h>

namespace troupe::cli {
namespace {

TEST(CliText, SizesAreReadWithTheirUnitsAndNothingElse) {
  EXPECT_EQ(bytes_of("--memory", "512MiB"), 512u << 20);
  EXPECT_EQ(bytes_of("--memory", "1.5G"), 3ull << 29);
  EXPECT_EQ(bytes_of("--memory", "4096"), 4096u);
  for (const char* bad : {"", "MiB", "-1", "0", "1e30", "12 MiB", "3TB", "nan", "0x10"}) {
    try {
      bytes_of("--memory", bad);
      ADD_FAILURE() << bad;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.message().find("--memory"), std::string::npos);
    }
  }
}

TEST(CliText, PairsNeedBothSides) {
  EXPECT_EQ(pair_of("--label", "zone=eu=1"), (std::pair<std::string, std::string>{"zone", "eu=1"}));
  for (const char* bad : {"", "zone", "=eu", "zone="})
    EXPECT_THROW(pair_of("--label", bad), InvalidArgument) << bad;
}

TEST(CliText, SizesAreShownInThreeDigits) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(64u << 20), "64 MiB");
  EXPECT_EQ(size_text(5ull << 40), "5.0 TiB");
}

TEST(CliText, IdsAreShownByTheShortestPartInWhichTheyDiffer) {
  const std::string job(24, 'a');
  const auto shown = [](const std::vector<std::string>& ids) {
    std::vector<std::string> parts;
    for (const auto& id : ids) parts.push_back(unique_part(ids).of(id));
    return parts;
  };
  EXPECT_EQ(shown({}), std::vector<std::string>{});
  EXPECT_EQ(shown({job + "00000001"}), std::vector<std::string>{"aaaaaaaa"});
  EXPECT_EQ(shown({job + "00000001", job + "00000002"}),
            (std::vector<std::string>{"00000001", "00000002"}));
  const std::string process = "0e9a51f3b402a604";  // one process has counted its tasks
  EXPECT_EQ(shown({process + "0000000000000009"}), std::vector<std::string>{"00000009"});
  EXPECT_EQ(shown({"1234567800000000", "1234567900000000", "1234567900000000"}),
            (std::vector<std::string>{"12345678", "12345679", "12345679"}));
  EXPECT_EQ(shown({"1234567800000000ffffffff", "1234567810000000ffffffff"}),
            (std::vector<std::string>{"123456780", "123456781"}));
}

TEST(CliText, FiltersTakeEveryState) {
  const auto takes = [](observe::RowKind kind, std::string_view state) {
    const auto where = Where::parse("state = " + std::string(state), observe::fields_of(kind));
    EXPECT_TRUE(where) << (where ? "" : where.error().message());
  };
  using control::ActorState, control::JobState;
  for (const auto state : {ActorState::pending, ActorState::placing, ActorState::alive,
                           ActorState::restarting, ActorState::dead})
    takes(observe::RowKind::actors, name_of(state));
  for (const auto state :
       {JobState::running, JobState::finished, JobState::failed, JobState::stopped})
    takes(observe::RowKind::jobs, name_of(state));
  using State = wire::MemoryObject::State;
  for (const auto state : {State::pending, State::error, State::inline_bytes, State::memory,
                           State::disk, State::elsewhere, State::forwarded})
    takes(observe::RowKind::objects, name_of(state));
  EXPECT_FALSE(Where::parse("state = pending", observe::fields_of(observe::RowKind::tasks)));
}

TEST(CliText, AgesAreShownInTwoUnits) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  EXPECT_EQ(age_text(kSecond / 2), "0s");
  EXPECT_EQ(age_text(59 * kSecond), "59s");
  EXPECT_EQ(age_text(90 * kSecond), "1m 30s");
  EXPECT_EQ(age_text(7205 * kSecond), "2h 0m");
  EXPECT_EQ(age_text(90'000 * kSecond), "1d 1h");
}

TEST(CliText, OnlyWhatSilentProcessesAloneHoldIsSuspect) {
  constexpr std::uint64_t kAfter = 60'000'000'000, kLong = 2 * kAfter, kShort = kAfter / 2;
  wire::MemoryHolder silent{wire::MemoryUser::worker, 7, {}, 1, kLong};
  wire::MemoryObject object;
  object.age_ns = object.unused_ns = kLong;
  object.holders = {silent};
  object.held = 1;
  EXPECT_EQ(suspicion(object, kAfter), "unused for 2m 0s, held only by worker 7, silent for 2m 0s");
  const auto innocent = [&](auto change) {
    wire::MemoryObject other = object;
    change(other);
    return suspicion(other, kAfter).empty();
  };
  EXPECT_TRUE(innocent([](auto& o) { o.age_ns = kShort; }));
  EXPECT_TRUE(innocent([](auto& o) { o.age_ns = 0; })) << "unknown";
  EXPECT_TRUE(innocent([](auto& o) { o.unused_ns = kShort; }));
  EXPECT_TRUE(innocent([](auto& o) { o.pins = 1; }));
  EXPECT_TRUE(innocent([](auto& o) { o.holders.clear(); }));
  EXPECT_TRUE(innocent([](auto& o) { o.holders[0].silent_ns = kShort; }));
  EXPECT_TRUE(innocent([](auto& o) { o.held = 2; })) << "somebody else, who is not listed";
  EXPECT_TRUE(innocent([&](auto& o) {
    o.holders.push_back({wire::MemoryUser::node, 0, {}, 1, 0});
  })) << "another node: who is it there?";
  EXPECT_TRUE(innocent([&](auto& o) {
    o.holders.push_back({wire::MemoryUser::agent, 0, {}, 1, 0});
  })) << "a value names it";
}

TEST(CliText, TablesAlignAndShowNoControlCharacters) {
  EXPECT_EQ(table_text({{"A", "LONG", "C"}, {"wide one", "x", ""}, {"\x1b[31m", "y\n", "z"}}),
            "A         LONG  C\n"
            "wide one  x\n"
            "?[31m     y?    z\n");
  EXPECT_EQ(table_text({}), "");
}

}  // namespace
}  // namespace troupe::cli
