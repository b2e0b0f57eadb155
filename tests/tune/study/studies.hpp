/// Folders of studies that tests make, copy, damage and remove.
#pragma once

#include "troupe/tune/study/study_store.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace troupe::tune::studies {

namespace fs = std::filesystem;

inline constexpr const char* kMeta = R"({"schema":3,"name":"test"})";

inline std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
inline void spill(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Options for a disk that is never full.
inline StudyStoreOptions options() {
  StudyStoreOptions options;
  options.reserve = Bytes{0};
  options.free_space = [] { return Bytes{1ull << 40}; };
  return options;
}

inline std::string event_text(std::uint64_t number) {
  return R"({"event":)" + std::to_string(number) + R"(,"text":")" + std::string(number % 60, 'x') +
         "\"}";
}
/// The trial whose row event `number` writes.
inline std::uint32_t trial_of(std::uint64_t number) {
  return static_cast<std::uint32_t>(number % 50);
}
/// Returns a batch of one event and the row of its trial, which names the event.
inline StudyBatch batch_of(std::uint64_t number) {
  StudyBatch batch{.first_event = number, .events = {event_text(number)}};
  batch.trials.push_back({trial_of(number), std::to_string(number)});
  return batch;
}

/// Returns what is wrong with events and rows that batch_of() wrote up to `last`; empty: nothing.
inline std::string fault_in(const StudyRows& rows, std::uint64_t last) {
  std::string fault;
  std::uint64_t seen = 0;
  rows.events(1,
              [&](std::uint64_t number, std::string_view json) {
                ++seen;
                if (json != event_text(number)) fault = "event " + std::to_string(number);
                return true;
              })
      .value();
  if (seen != last) fault = std::to_string(seen) + " events";
  rows.trials(0,
              [&](std::uint64_t trial, std::string_view json) {
                // The last event of the trial: the one that its row must name.
                std::uint64_t of = last;
                while (of > 0 && trial_of(of) != trial) --of;
                if (json != std::to_string(of)) fault = "the row of trial " + std::to_string(trial);
                return true;
              })
      .value();
  return fault;
}

class Test : public testing::Test {
 protected:
  Test() {
    // In memory where there is room: hundreds of stores are made and read, and none must last.
    const bool in_memory = std::getenv("TMPDIR") == nullptr && ::access("/dev/shm", W_OK) == 0;
    const fs::path in = in_memory ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string path = (in / "troupe-study-XXXXXX").string();
    root_ = ::mkdtemp(path.data());
    study_ = root_ + "/study";
  }
  ~Test() override { fs::remove_all(root_); }

  std::string root_, study_;
};

}  // namespace troupe::tune::studies
