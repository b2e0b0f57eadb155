// Proves that a study's store and checkpoint files live in a driver beside its cluster.
#include "troupe/tune/study/study_disk.hpp"
#include "troupe/tune/tune.hpp"

#include "tests/programs/program.hpp"

#include <stdlib.h>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace studies {
namespace {

using namespace std::chrono_literals;
using programs::Program;
using troupe::Context;
namespace tune = troupe::tune;

struct Net {
  std::vector<double> weight = std::vector<double>(1000, 0.5);
  [[maybe_unused]] friend auto fields(Net& n) { return std::tie(n.weight); }
  [[maybe_unused]] friend auto fields(const Net& n) { return std::tie(n.weight); }
};

troupe::train::SavedModel train(Context ctx, int step) {
  Net net;
  net.weight[0] = step;
  return troupe::train::save_model(ctx, step, net);
}

/// Returns the row of a file, as an experiment's core writes it.
std::string row_of(const tune::CheckpointSave& save) {
  return R"({"trial":0,"step":)" + std::to_string(save.step) + R"(,"file":")" + save.key +
         R"(","hash":")" + save.hash + R"(","bytes":)" + std::to_string(save.bytes) + "}";
}

/// The first life of a study: two models of tasks become files, and their rows go to the store.
void first_life(Context& ctx, const std::string& folder) {
  auto disk = tune::StudyDisk::open(ctx, folder, {}).value();
  std::cout << disk->is_new() << '\n';
  tune::StudyBatch batch{.first_event = 1, .events = {R"({"n":1})", R"({"n":2})"}};
  batch.meta = R"({"version":3})";
  for (const int step : {7, 8}) {
    const troupe::train::SavedModel saved = ctx.get(ctx.submit<train>(step));
    const tune::CheckpointSave save{.key = "t0-" + std::to_string(step),
                                    .step = saved.step,
                                    .hash = tune::hash_text(saved.hash),
                                    .bytes = saved.bytes};
    disk->save(save, saved);
    batch.checkpoints.push_back({save.key, row_of(save)});
  }
  for (int stored = 0; stored < 2; std::this_thread::sleep_for(1ms))
    for (const auto& done : disk->take_stored()) {
      if (done.error) std::cout << done.error->what() << '\n';
      ++stored;
    }
  disk->write(batch);
}

/// The second life: the models come from the files. One file is gone, and one is not needed.
void second_life(Context& ctx, const std::string& folder) {
  std::filesystem::remove(folder + "/checkpoints/t0-8.safetensors");
  auto disk = tune::StudyDisk::open(ctx, folder, {}).value();
  const auto next = disk->lines();
  while (const auto line = next()) std::cout << *line << ' ';
  for (const auto& fault : disk->faults()) std::cout << fault.key << ' ';
  Net net;
  load_model(ctx, disk->model("t0-7"), 10s, net);
  std::cout << net.weight[0] << '\n';
  disk->drop("t0-7");
  std::cout << disk->has("t0-7") << std::filesystem::is_empty(folder + "/checkpoints") << '\n';
}

/// A folder of the program's own.
class Folder {
 public:
  Folder() {
    if (::mkdtemp(path_.data()) == nullptr) std::cout << "no folder\n";
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string study() const { return path_ + "/study"; }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "troupe-studies-XXXXXX").string();
};

void two_lives(Context& ctx) {
  const Folder folder;
  first_life(ctx, folder.study());
  second_life(ctx, folder.study());
}
/// Proves that a study's second life finds the events and the models of the first one.
const Program lives{
    "study_files",
    {.expect = "1\n{\"version\":3} {\"n\":1} {\"n\":2} t0-8 7\n01\n", .seconds = 20},
    two_lives};

/// A batch and a file meet a full disk. The line about it makes room each time.
void full_disk(Context& ctx) {
  const Folder folder;
  std::atomic<std::uint64_t> free{1ull << 40};
  tune::StudyDisk::Options options;
  options.store.free_space = [&free] { return troupe::Bytes{free}; };
  options.tell = [&free](const std::string& line) {
    std::cout << (line.find(" 8192 ") != std::string::npos) << '\n';
    free = 1ull << 40;
  };
  auto disk = tune::StudyDisk::open(ctx, folder.study(), options).value();
  free = 8192;
  disk->write({.first_event = 1, .events = {"{}"}});
  std::cout << disk->store().last_event() << '\n';
  const troupe::train::SavedModel saved = ctx.get(ctx.submit<train>(7));
  free = 8192;
  disk->save({.key = "k", .hash = tune::hash_text(saved.hash), .bytes = saved.bytes}, saved);
  std::vector<tune::StudyDisk::Stored> stored;
  while ((stored = disk->take_stored()).empty()) std::this_thread::sleep_for(1ms);
  std::cout << stored.front().key << stored.front().error.has_value() << '\n';
}
/// Proves that a full disk holds a study up and does not end it.
const Program full{"study_full_disk", {.expect = "1\n1\n1\nk0\n", .seconds = 20}, full_disk};

struct Hp {
  double rate = 0.1;
};
void talks(tune::Trial& t, Hp) {
  std::printf("hello from %d\n", t.number());
  std::cerr << "and an error\n";
  static_cast<void>(t.report(1.0));
  std::printf("half a line");
  if (t.number() == 1) ::raise(SIGKILL);
}
void printing(Context& ctx) {
  const Folder folder;
  const auto space = tune::Space<Hp>{}.with(&Hp::rate, tune::uniform(0, 1));
  const auto best = tune::optimize<talks, Hp>(ctx, space,
                                              {.goal = tune::minimize,
                                               .trials = 2,
                                               .concurrent = 1,
                                               .show = false,
                                               .results = folder.study()});
  std::cout << name_of(best.board.trials[1].state) << '\n';
  for (const char* file : {"/logs/trial-0.txt", "/logs/trial-1.txt"})
    std::cout << std::ifstream(folder.study() + file).rdbuf() << "|\n";
}
/// Proves that lines of trials have the trial's number, and are kept when its process dies.
const Program prints{"trials_print",
                     {.expect = "t0: hello from 0\nt0: and an error\nt0: half a line\n"
                                "t1: hello from 1\nt1: and an error\nfailed\n"
                                "hello from 0\nand an error\nhalf a line|\n"
                                "hello from 1\nand an error\n|\n",
                      .seconds = 20},
                     printing};

}  // namespace
}  // namespace studies
