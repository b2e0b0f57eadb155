// The suite "control": how fast control's store makes the records of many requests durable.
#include "suite.hpp"

#include "tools.hpp"
#include "troupe/runtime/control/rocks_store.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <array>

namespace troupe::bench {
namespace {

/// kGroup requests share a commit when many wait. kRecord is the size of a record in bytes.
constexpr int kGroup = 256;
constexpr std::size_t kRecord = 200;

/// Synchronous writes of 4 KiB per second, in a folder of the same file system.
double syncs_per_second() {
  const ScratchFolder folder;
  const int file = open((folder.path() / "file").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  expect(file >= 0, "a file to write");
  std::array<char, 4096> page{};
  constexpr int kWrites = 100;
  const Stopwatch watch;
  for (int i = 0; i < kWrites; ++i) {
    page[0] = static_cast<char>(i);
    expect(pwrite(file, page.data(), page.size(), 0) == 4096 && fdatasync(file) == 0, "a write");
  }
  const double rate = kWrites / watch.seconds();
  close(file);
  return rate;
}

/// Records per second that are durable when they are acknowledged, while many requests wait.
double durable(bool quick) {
  const ScratchFolder folder;
  auto store = control::open_rocks_store((folder.path() / "store").string(), {}).value();
  const std::string record(kRecord, 'x');
  const int groups = quick ? 2 : 100;
  int number = 0;
  const Stopwatch watch;
  for (int i = 0; i < groups; ++i) {
    std::vector<control::Batch> group(kGroup);
    for (control::Batch& batch : group) batch.put("actor/" + std::to_string(number++), record);
    store->commit(group).value();
  }
  return number / watch.seconds();
}

class Control final : public Suite {
 public:
  const char* name() const override { return "control"; }
  std::span<const RowInfo> rows() const override { return rows_; }
  int calm_floor() const override { return 0; }
  Sample measure_floor(int, Placement) override { return median_of(5, syncs_per_second); }
  std::vector<Reading> measure(std::span<const std::size_t> rows, Placement, bool quick) override {
    return std::vector<Reading>(rows.size(), Reading{durable(quick)});
  }

 private:
  std::array<RowInfo, 1> rows_{
      {{"control_durable", "records/s", 0, at_least(Goal::Of::value, 50e3), false}}};
};

}  // namespace

Suite& control_suite() {
  static Control suite;
  return suite;
}

}  // namespace troupe::bench
