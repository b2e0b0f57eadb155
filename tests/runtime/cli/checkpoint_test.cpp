// Tests `troupe checkpoint inspect` and `troupe checkpoint consolidate`.
#include "command.hpp"

#include "troupe/train/checkpoint/folder/commit.hpp"
#include "troupe/train/checkpoint/folder/names.hpp"
#include "troupe/train/checkpoint/folder/tensor_file.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace troupe::cli {
namespace {

using nlohmann::json;

class CheckpointVerbs : public testing::Test {
 protected:
  void SetUp() override {
    for (const long step : {5, 10}) save(step);
  }
  ~CheckpointVerbs() override {
    std::error_code ignored;
    std::filesystem::remove_all(run_, ignored);
  }
  std::string checkpoint(long step) const { return run_ + "/" + train::step_folder_name(step); }
  static std::string model() { return train::tensor_file_name(train::FileKind::model, 1, 1); }
  static json inspect(const std::string& path, int code = 0) {
    const Outcome o = troupe_command({"checkpoint", "inspect", path, "--json"});
    EXPECT_EQ(o.code, code) << o.err;
    return json::parse(o.out).at("checkpoints");
  }

  std::string run_ = [] {
    std::string name = testing::TempDir() + "troupe_checkpoint_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();

 private:
  void save(long step) const {
    const train::RunLock lock(run_);
    const std::string writing = run_ + "/" + train::writing_folder_name(step, lock.id());
    std::filesystem::create_directory(writing);
    std::vector<train::SavedFile> files;
    for (const train::FileKind kind : {train::FileKind::model, train::FileKind::optimizer}) {
      const std::string prefix = kind == train::FileKind::model ? "" : "optimizer.m.";
      auto file = train::TensorFile::create(writing + "/" + train::tensor_file_name(kind, 1, 1),
                                            {{prefix + "a", {2, 3}}, {prefix + "b", {}}}, step)
                      .value();
      const std::vector<float> values(6, static_cast<float>(step));
      file.append(std::as_bytes(std::span(values))).value();
      file.append(std::as_bytes(std::span(values).first(1))).value();
      files.push_back(file.finish().value());
    }
    train::CheckpointDocument document;
    document.step = step;
    document.layout = {.dp = 2, .zero = 1};
    document.engine = 0;
    train::commit_checkpoint(run_, lock.id(), lock, document, files);
  }
};

TEST_F(CheckpointVerbs, InspectShowsEachCheckpointOfARun) {
  const json all = inspect(run_);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("step"), 10);
  EXPECT_EQ(all[0].at("complete"), true);
  EXPECT_EQ(all[0].at("layout"), "dp=2,tp=1,pp=1 zero=1 f32");
  EXPECT_EQ(all[0].at("files"), 3);
  EXPECT_EQ(all[0].at("tensors"),
            json({"a F32[2, 3]", "b F32[]", "optimizer.m.a F32[2, 3]", "optimizer.m.b F32[]"}));
  const json file = inspect(checkpoint(5) + "/" + model());
  EXPECT_EQ(file[0].at("step"), 5);
  EXPECT_EQ(file[0].at("tensors"), json({"a F32[2, 3]", "b F32[]"}));
  const Outcome people = troupe_command({"checkpoint", "inspect", checkpoint(5)});
  EXPECT_NE(people.out.find("step 5, 4 tensors"), std::string::npos) << people.out;
  EXPECT_NE(people.out.find("complete\n  a F32[2, 3]\n"), std::string::npos) << people.out;
}

TEST_F(CheckpointVerbs, InspectSaysWhyACheckpointIsNotComplete) {
  std::fstream file(checkpoint(10) + "/" + model(),
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('x');
  file.close();
  const json all = inspect(run_);
  EXPECT_EQ(all[0].at("complete"), false);
  EXPECT_NE(all[0].at("problem").get<std::string>().find(model() + " has other bytes"),
            std::string::npos);
  EXPECT_EQ(all[1].at("complete"), true);
  EXPECT_EQ(inspect(checkpoint(10), 1)[0].at("complete"), false);
  std::filesystem::remove(checkpoint(5) + "/" + train::kDocumentFile);
  inspect(checkpoint(5), 1);
  EXPECT_EQ(troupe_command({"checkpoint", "inspect", run_ + "/none"}).code, 2);
}

TEST_F(CheckpointVerbs, ConsolidateWritesOneFile) {
  const std::string to = run_ + "/one.safetensors";
  ASSERT_EQ(troupe_command({"checkpoint", "consolidate", run_, "--to", to}).code, 0);
  const train::SafetensorsFile weights = train::read_safetensors_file(to).value();
  EXPECT_EQ(weights.metadata.at("troupe.snapshot"), "1");
  ASSERT_EQ(weights.tensors.size(), 2u);
  EXPECT_EQ(weights.tensors[0].name, "a");
  ASSERT_EQ(troupe_command({"checkpoint", "consolidate", checkpoint(5), "--to", to, "--all"}).code,
            0);
  EXPECT_EQ(train::read_safetensors_file(to).value().tensors.size(), 4u);
  EXPECT_EQ(troupe_command({"checkpoint", "consolidate", run_ + "/none", "--to", to}).code, 2);
  EXPECT_EQ(troupe_command({"checkpoint", "consolidate", run_}).code, 2);
}

}  // namespace
}  // namespace troupe::cli
