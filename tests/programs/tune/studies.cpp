// Proves that a study's store and checkpoint files live in a driver beside its cluster.
#include "troupe/tune/study/stored_models.hpp"
#include "troupe/tune/study/study_store.hpp"

#include "tests/programs/program.hpp"

#include <stdlib.h>
#include <filesystem>
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

/// Takes a task's model through a file, and a row of it through the store.
void through_a_file(Context& ctx) {
  std::string root = (std::filesystem::temp_directory_path() / "troupe-studies-XXXXXX").string();
  if (::mkdtemp(root.data()) == nullptr) return;
  {
    auto store = tune::StudyStore::open(root + "/study", {}).value();
    const troupe::train::SavedModel saved = ctx.get(ctx.submit<train>(7));
    tune::CheckpointSave save;
    save.key = "t0-7";
    save.step = saved.step;
    save.bytes = saved.bytes;
    save.hash = tune::hash_text(saved.hash);
    tune::CheckpointFiles::Options options;
    options.pull = [&](const tune::CheckpointSave&) { return tune::pull_model(ctx, saved, 10s); };
    tune::CheckpointFiles files(store->folder().checkpoints_path(), options);
    files.write(save);
    std::vector<tune::CheckpointFiles::Done> done;
    while ((done = files.take_done()).empty()) std::this_thread::sleep_for(1ms);
    if (done.front().error) std::cout << done.front().error->what() << '\n';
    tune::StudyBatch batch{.first_event = 1, .events = {"{}"}};
    batch.checkpoints = {{save.key, "{}"}};
    store->write(batch).value();
    const auto again = publish_model(ctx, files.read(save).value(), save);
    Net net;
    const bool same = load_model(ctx, again, 10s, net) == saved.hash && again.hash == saved.hash;
    std::cout << same << ' ' << net.weight[0] << ' ' << (again.types == saved.types) << '\n';
  }
  std::cout << tune::StudyReader::open(root + "/study").value().last_event() << '\n';
  std::filesystem::remove_all(root);
}
const Program file{"study_files", {.expect = "1 7 1\n1\n", .seconds = 20}, through_a_file};

}  // namespace
}  // namespace studies
