// Tests the files of checkpoints: whole or absent, checked against their hash, and a full disk.
#include "troupe/tune/study/checkpoint_files.hpp"
#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "tests/tune/study/studies.hpp"
#include "troupe/runtime/base/random.hpp"
#include "troupe/train/hash.hpp"

#include <gtest/gtest.h>
#include <atomic>
#include <future>
#include <thread>

namespace troupe::tune {
namespace {

using namespace studies;

StoredModel model_of(const std::string& text) {
  auto owner = std::make_shared<std::string>(text);
  StoredModel model;
  model.bytes = std::as_bytes(std::span(owner->data(), owner->size()));
  model.owner = owner;
  model.types = 17;
  model.passes = 2;
  model.batches = 5;
  return model;
}

CheckpointSave save_of(const std::string& key, const std::string& text) {
  CheckpointSave save{.key = key, .trial = 3, .step = 20};
  save.hash = hash_text(train::hash_bytes(text.data(), text.size()));
  save.bytes = text.size();
  return save;
}

std::string text_of(const StoredModel& model) {
  return {reinterpret_cast<const char*>(model.bytes.data()), model.bytes.size()};
}

class CheckpointFilesTest : public studies::Test {
 protected:
  static CheckpointFiles::Pull pull(const std::string& text) {
    return [text] { return model_of(text); };
  }
  static CheckpointFiles::Options options() {
    CheckpointFiles::Options options;
    options.free_space = [] { return Bytes{1ull << 40}; };
    return options;
  }
  /// Waits for one write, 20 s at most.
  static CheckpointFiles::Done wait(CheckpointFiles& files) {
    std::vector<CheckpointFiles::Done> done;
    (void)eventually([&] { return !(done = files.take_done()).empty(); });
    if (!done.empty()) return done.front();
    return {{}, Error(Code::timed_out, "no write ended")};
  }
};

TEST_F(CheckpointFilesTest, AModelIsReadBackAndOtherToolsReadIt) {
  const std::string text(10'000, 'w');
  const CheckpointSave save = save_of("t3-20", text);
  CheckpointFiles files(root_, options());
  files.write(save, pull(text));
  ASSERT_FALSE(wait(files).error.has_value());
  const auto model = files.read(save);
  ASSERT_TRUE(model.ok()) << model.error().what();
  EXPECT_EQ(text_of(*model), text);
  EXPECT_EQ(model->types, 17u);
  EXPECT_EQ(model->passes, 2u);
  EXPECT_EQ(model->batches, 5u);
  EXPECT_EQ(files.fault_of(save), "");
  const auto plain = train::read_safetensors_file(root_ + "/t3-20.safetensors");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->metadata.at("step"), "20");
  EXPECT_EQ(plain->find("model")->bytes.size(), text.size());
}

TEST_F(CheckpointFilesTest, AMissingShortOrAlteredFileIsNamed) {
  const std::string text(5000, 'w');
  const CheckpointSave save = save_of("k", text);
  CheckpointFiles files(root_, options());
  EXPECT_EQ(files.fault_of(save), "is missing");
  files.write(save, pull(text));
  ASSERT_FALSE(wait(files).error.has_value());
  const std::string path = files.path_of("k"), bytes = slurp(path);
  spill(path, bytes.substr(0, 4000));
  EXPECT_NE(files.fault_of(save), "");
  EXPECT_NE(files.read(save).error().message().find(path), std::string::npos);
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    std::string altered = bytes;
    const std::size_t at = random.below(bytes.size());
    altered[at] = static_cast<char>(altered[at] ^ (1 << random.below(8)));
    spill(path, altered);
    const auto read = files.read(save);
    ASSERT_TRUE(!read.ok() || (text_of(*read) == text && read->types == 17 && read->passes == 2))
        << "bit at " << at;
    ASSERT_TRUE(read.ok() || read.error().code() == Code::invalid_argument);
  }
}

TEST_F(CheckpointFilesTest, TwoArePulledAtATime) {
  std::atomic<int> pulled{0};
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> woken{0};
  CheckpointFiles::Options with = options();
  with.wake = [&] { ++woken; };
  CheckpointFiles files(root_, with);
  for (const std::string key : {"a", "b", "c", "d"})
    files.write(save_of(key, "x"), [&, key]() -> Result<StoredModel> {
      ++pulled;
      opened.wait();
      if (key == "b") return Error(Code::object_lost, "gone");
      return model_of("x");
    });
  files.remove({"d"});
  EXPECT_TRUE(eventually([&] { return pulled == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pulled, 2);  // the third one would show by now
  gate.set_value();
  std::string failed;
  EXPECT_TRUE(eventually([&] { return woken == 3; }));
  for (const auto& done : files.take_done())
    if (done.error) failed += done.save.key;
  EXPECT_EQ(failed, "b");
  EXPECT_EQ(pulled, 3);
}

/// A write that lasts for ever holds its owner up for a moment alone, and makes no file later.
TEST_F(CheckpointFilesTest, TheEndDoesNotWaitForASlowWrite) {
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::atomic<int> pulled{0}, asked{0}, woken{0};
  CheckpointFiles::Options with = options();
  with.free_space = [&asked, opened] {
    ++asked;
    opened.wait();
    return Bytes{1ull << 40};
  };
  with.wake = [&woken] { ++woken; };
  const auto held = std::make_shared<int>(0);
  const Time begun = steady_now();
  {
    CheckpointFiles files(root_, with);
    for (const std::string key : {"a", "b", "c"})
      files.write(save_of(key, "x"), [held, &pulled] {
        ++pulled;
        return model_of("x");
      });
    EXPECT_TRUE(eventually([&] { return pulled == 2 && asked == 1; }));
  }
  EXPECT_LT(steady_now() - begun, std::chrono::seconds(2) * kLeeway);
  gate.set_value();
  EXPECT_TRUE(eventually([&] { return held.use_count() <= 2; })) << "the two that had begun end";
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(woken, 0);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(CheckpointFilesTest, AFullDiskSaysWhatIsNeededAndFree) {
  const std::string text(1000, 'w');
  CheckpointFiles::Options with = options();
  with.free_space = [] { return Bytes{64ull << 20}; };
  CheckpointFiles files(root_, with);
  files.write(save_of("k", text), pull(text));
  const auto done = wait(files);
  ASSERT_TRUE(done.error.has_value());
  EXPECT_EQ(done.error->code(), Code::out_of_disk);
  EXPECT_NE(done.error->message().find("needs 1000 bytes, and 67108864 are free"),
            std::string::npos)
      << done.error->what();
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(CheckpointFilesTest, FilesWithoutARowAndDraftsAreTidied) {
  const std::string text = "w";
  CheckpointFiles files(root_, options());
  for (const char* key : {"a", "b"}) {
    files.write(save_of(key, text), pull(text));
    ASSERT_FALSE(wait(files).error.has_value());
  }
  spill(root_ + "/c.safetensors.12-0.tmp", "half");
  spill(root_ + "/mine.txt", "a user's");
  EXPECT_EQ(files.tidy({"a"}), 2);
  EXPECT_TRUE(files.read(save_of("a", text)).ok());
  EXPECT_TRUE(fs::exists(root_ + "/mine.txt"));
  files.remove({"a", "never"});
  EXPECT_EQ(files.fault_of(save_of("a", text)), "is missing");
}

}  // namespace
}  // namespace troupe::tune
