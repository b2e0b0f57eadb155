// Tests checkpoints in folders on threads: staged, exchanged, written, committed, and loaded in
// another layout.
#include "troupe/train/checkpoint/folder/commit.hpp"
#include "troupe/train/checkpoint/folder/folder_checkpoint.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/folder/run_lock.hpp"
#include "troupe/train/checkpoint/folder/staged_state.hpp"
#include "troupe/train/checkpoint/folder/writer.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"

#include "tests/train/engine/ranks.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <mutex>

namespace troupe::train::testing {
namespace {

const GptShape kFolderShape{};
constexpr long kStep = 2;

class Folders : public ::testing::Test {
 protected:
  ~Folders() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  /// Returns a new folder.
  std::string folder(const std::string& name) const {
    std::filesystem::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }

  /// Trains two steps in the layout and saves them. Returns the hash of the weights.
  std::uint64_t save(const Layout& layout, const std::string& run,
                     const Snapshot* from = nullptr) const {
    const RunLock lock(run);
    std::mutex mutex;
    std::uint64_t hash = 0;
    std::vector<SavedFile> files;
    std::vector<std::size_t> staged;
    CheckpointDocument document;
    on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
      Engine engine(gpt(kFolderShape), layout, context.mesh, context.device, {});
      engine.initialize(3);
      if (from != nullptr) engine.restore(*from);
      for (long step = 0; from == nullptr && step < kStep; ++step) {
        std::vector<Rows> parts =
            share_of(kFolderShape, step, 8, context.mesh.dp_rank, layout.dp, layout.micro);
        engine.step(micros_of(parts));
      }
      const int rank = context.mesh.rank();
      CheckpointWriter writer(rank, layout.ranks(),
                              context.mesh.world ? context.mesh.world->split(0, rank) : nullptr);
      engine.stage(writer.staged());
      WrittenShare written;
      writer.begin({.folder = run + "/" + writing_folder_name(kStep, lock.id()),
                    .step = kStep,
                    .engine = true,
                    .parts = {},
                    .done = [&](WrittenShare share) { written = std::move(share); }});
      EXPECT_TRUE(writer.wait(std::chrono::seconds(30)));
      const std::uint64_t own = engine.weights_hash();
      const std::lock_guard guard(mutex);
      EXPECT_EQ(written.error, "");
      files.insert(files.end(), written.files.begin(), written.files.end());
      staged.push_back(writer.staged().values.size());
      if (rank != 0) return;
      hash = own;
      document.step = kStep;
      document.steps = writer.staged().steps;
      document.seed = writer.staged().seed;
      document.layout = layout;
      document.engine = 0;
    });
    commit_checkpoint(run, lock.id(), lock, document, files);
    std::size_t all = 0;
    for (const std::size_t each : staged) all += each;
    for (const std::size_t each : staged)
      EXPECT_LE(each, 2 * all / staged.size()) << "a rank stages its share, and not everything";
    return hash;
  }

  /// Returns the hash of the weights after a load in the layout.
  static std::uint64_t load(const Layout& layout, const std::string& checkpoint) {
    std::uint64_t hash = 0;
    on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
      const FolderCheckpoint saved = FolderCheckpoint::open(checkpoint);
      Engine engine(gpt(kFolderShape), layout, context.mesh, context.device, {});
      engine.restore(saved.view(), saved.identity());
      EXPECT_EQ(engine.steps(), kStep);
      const std::uint64_t own = engine.weights_hash();
      if (context.mesh.rank() == 0) hash = own;
    });
    return hash;
  }

 private:
  static std::string make_folder() {
    std::string name = ::testing::TempDir() + "troupe_folders_XXXXXX";
    return ::mkdtemp(name.data());
  }
  std::string folder_ = make_folder();
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST_F(Folders, AnyLayoutLoadsAnyLayout) {
  for (const Layout& saved :
       {Layout{.dp = 4, .zero = 3}, Layout{.dp = 2, .tp = 2}, Layout{.dp = 2, .tp = 2, .zero = 1},
        Layout{.pp = 2, .micro = 2}, Layout{.dp = 3, .compute = DType::bf16}, Layout{}}) {
    const std::string run =
        folder("run-dp" + std::to_string(saved.dp) + "-tp" + std::to_string(saved.tp) + "-zero" +
               std::to_string(saved.zero) + "-pp" + std::to_string(saved.pp));
    const std::uint64_t hash = save(saved, run);
    const std::string checkpoint = run + "/" + step_folder_name(kStep);
    EXPECT_EQ(look_at(checkpoint, kStep).problem, "");
    for (const Layout& loaded : {Layout{}, Layout{.dp = 2, .tp = 2}, Layout{.dp = 4, .zero = 3}})
      EXPECT_EQ(load(loaded, checkpoint), hash) << run << " in dp " << loaded.dp;
  }
}

TEST_F(Folders, ConsolidatedFilesOfTwoLayoutsAreEqualByteForByte) {
  const std::string one = folder("one"), other = folder("other");
  save({.dp = 4, .zero = 3}, one);
  const FolderCheckpoint saved = FolderCheckpoint::open(one + "/" + step_folder_name(kStep));
  const Snapshot state = copy_of(saved.view());
  save({.dp = 2, .tp = 2, .zero = 1}, other, &state);
  for (const bool all : {false, true}) {
    consolidate(saved.path(), one + "/file", all);
    consolidate(other + "/" + step_folder_name(kStep), other + "/file", all);
    EXPECT_EQ(bytes_of(one + "/file"), bytes_of(other + "/file"));
    const Snapshot read = read_snapshot(one + "/file");
    EXPECT_EQ(read.step, kStep);
    EXPECT_EQ(read.tensors.size(), all ? state.tensors.size() : state.tensors.size() / 3);
  }
}

TEST_F(Folders, AreWhatOtherToolsRead) {
  const std::string run = folder("run");
  save({.dp = 3}, run);
  const std::string checkpoint = run + "/" + step_folder_name(kStep);
  const std::string index = bytes_of(checkpoint + "/model.safetensors.index.json");
  EXPECT_NE(index.find("\"weight_map\""), std::string::npos);
  EXPECT_NE(index.find("\"total_size\""), std::string::npos);
  std::size_t tensors = 0;
  for (int number = 1; number <= 3; ++number) {
    const std::string name = tensor_file_name(FileKind::model, number, 3);
    const SafetensorsFile file =
        read_safetensors_file(std::string(checkpoint).append("/").append(name)).value();
    EXPECT_EQ(file.metadata.at("format"), "pt");
    tensors += file.tensors.size();
    for (const FileTensor& tensor : file.tensors) {
      EXPECT_NE(index.find("\"" + tensor.name + "\": \"" + name + "\""), std::string::npos);
      std::string offsets = "[";
      for (std::size_t d = 0; d < tensor.shape.size(); ++d) offsets += d == 0 ? "0" : ",0";
      EXPECT_NE(file.metadata.at("DCP_SHARDING_INFO")
                    .find("\"" + tensor.name + "\":{\"saved_offsets\":" + offsets + "]}"),
                std::string::npos);
    }
  }
  EXPECT_EQ(tensors * 3, FolderCheckpoint::open(checkpoint).view().tensors.size());
}

TEST_F(Folders, ADamagedFileIsNamed) {
  const std::string run = folder("run");
  save({.dp = 2}, run);
  const std::string checkpoint = run + "/" + step_folder_name(kStep);
  const std::string model = checkpoint + "/" + tensor_file_name(FileKind::model, 2, 2);
  const std::string document = checkpoint + "/" + kDocumentFile;
  const std::string good = bytes_of(model), good_document = bytes_of(document);
  const auto problem = [&] { return look_at(checkpoint, kStep).problem; };

  std::string flipped = good;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  write(model, flipped);
  EXPECT_EQ(problem(), "") << "sizes alone do not show it";
  const FolderCheckpoint opened = FolderCheckpoint::open(checkpoint);
  int wrong = 0;
  for (std::size_t f = 0; f < opened.document().files.size(); ++f) {
    const Result<void> verified = opened.verify(f);
    if (verified) continue;
    ++wrong;
    EXPECT_NE(verified.error().message().find(model), std::string::npos);
  }
  EXPECT_EQ(wrong, 1);
  EXPECT_THROW(consolidate(checkpoint, run + "/out", false), InvalidArgument);

  std::filesystem::remove(model);
  write(model, good.substr(0, good.size() - 1));
  EXPECT_NE(problem().find(model), std::string::npos);
  std::filesystem::remove(model);
  EXPECT_NE(problem().find(model), std::string::npos);
  ASSERT_EQ(::mkfifo(model.c_str(), 0600), 0);
  EXPECT_NE(problem().find("no regular file"), std::string::npos);
  std::filesystem::remove(model);
  write(model, good);
  EXPECT_EQ(problem(), "");

  write(document, "{\"step\": 2}");
  EXPECT_NE(problem().find("no document of a troupe checkpoint"), std::string::npos);
  write(document, good_document);
  std::filesystem::rename(checkpoint, run + "/" + step_folder_name(7));
  EXPECT_NE(look_at(run + "/" + step_folder_name(7), 7).problem.find("is of step 2"),
            std::string::npos);
}

TEST_F(Folders, ACommitMovesTheFolderOfThatNameAside) {
  const std::string run = folder("run");
  std::filesystem::create_directory(run + "/" + step_folder_name(kStep));
  EXPECT_NE(look_at(run + "/" + step_folder_name(kStep), kStep).problem, "");
  save({}, run);
  EXPECT_EQ(look_at(run + "/" + step_folder_name(kStep), kStep).problem, "");
  int aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    aside += entry.path().filename().string().find("skipped") != std::string::npos ? 1 : 0;
  EXPECT_EQ(aside, 1);
}

TEST_F(Folders, ADriverThatLostTheLockRenamesNothing) {
  const std::string run = folder("run");
  const RunLock first(run);
  EXPECT_THROW(RunLock second(run), InvalidArgument);
  first.check();
  EXPECT_EQ(why_not_shared(run, first.id(), "0", {}), "");
  // As where the system's lock does not reach: another driver writes its own id.
  write(run + "/" + kLockFile, "{\"host\":\"h2\",\"id\":\"x\",\"process\":7}");
  EXPECT_NE(why_not_shared(run, first.id(), "0", {}), "");
  try {
    first.check();
    ADD_FAILURE() << "the lock is another driver's";
  } catch (const Unavailable& error) {
    EXPECT_NE(error.message().find("process 7 on host h2"), std::string::npos);
  }
  CheckpointDocument document;
  document.step = 1;
  const std::string writing = run + "/" + writing_folder_name(1, first.id());
  std::filesystem::create_directory(writing);
  EXPECT_THROW(commit_checkpoint(run, first.id(), first, document, {}), Unavailable);
  EXPECT_TRUE(std::filesystem::exists(writing));
  EXPECT_FALSE(std::filesystem::exists(run + "/" + step_folder_name(1)));
}

TEST_F(Folders, ARankThatCannotWriteLetsTheOthersWrite) {
  const std::string run = folder("run");
  std::vector<std::string> errors(2);
  on_ranks(2, Wire::local, [&](RankContext& context) {
    Engine engine(gpt(kFolderShape), {.dp = 2, .zero = 3}, context.mesh, context.device, {});
    engine.initialize(3);
    const int rank = context.mesh.rank();
    CheckpointWriter writer(rank, 2, context.mesh.world->split(0, rank));
    for (const char* name : {"missing/a", "b"}) {
      engine.stage(writer.staged());
      writer.begin({.folder = run + "/" + (rank == 1 ? name : "b"),
                    .step = 1,
                    .engine = true,
                    .parts = {},
                    .done = [&](const WrittenShare& share) {
                      errors[static_cast<std::size_t>(rank)] += share.error + ";";
                    }});
      EXPECT_TRUE(writer.wait(std::chrono::seconds(30)));
    }
  });
  EXPECT_EQ(errors[0], ";;");
  EXPECT_NE(errors[1].find("missing/a"), std::string::npos);
  EXPECT_TRUE(errors[1].ends_with(";;")) << errors[1];
}

TEST_F(Folders, AJobThatTakesLongIsSeenAndLosesNothing) {
  const std::string run = folder("run");
  std::promise<void> goes_on;
  CheckpointWriter writer(0, 1, nullptr);
  std::string error = "not told";
  writer.begin({.folder = run + "/a",
                .step = 1,
                .engine = false,
                .parts = Blob(3),
                .done = [&](const WrittenShare& share) {
                  goes_on.get_future().wait();
                  error = share.error;
                }});
  EXPECT_FALSE(writer.wait(std::chrono::milliseconds(1)));
  goes_on.set_value();
  EXPECT_TRUE(writer.wait(std::chrono::seconds(30)));
  EXPECT_EQ(error, "");
  EXPECT_EQ(std::filesystem::file_size(run + "/a/" + kPartsFile), 3u);
}

}  // namespace
}  // namespace troupe::train::testing
