// A model's tensors in a safetensors file.
#include "troupe/train/parameter_files.hpp"

#include "troupe/train/gpt.hpp"
#include "troupe/train/hash.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace troupe::train {
namespace {

TEST(ParameterFiles, AModelSurvivesAFileBitwise) {
  const std::string path = testing::TempDir() + "troupe_safetensors_test.safetensors";
  const GptConfig config{.vocabulary = 20, .context = 4, .layers = 2, .heads = 2, .channels = 8};
  Gpt saved(config, 1), loaded(config, 2);
  write_safetensors_file(path, views(saved.map(), saved.parameters()), {{"format", "pt"}}).value();
  const auto file = read_safetensors_file(path).value();
  load_parameters(file, loaded.map(), loaded.parameters());
  EXPECT_EQ(hash_floats(saved.parameters()), hash_floats(loaded.parameters()));

  Gpt other({.vocabulary = 21, .context = 4, .layers = 2, .heads = 2, .channels = 8}, 3);
  const std::uint64_t before = hash_floats(other.parameters());
  EXPECT_THROW(load_parameters(file, other.map(), other.parameters()), InvalidArgument);
  EXPECT_EQ(hash_floats(other.parameters()), before) << "a refused file changes nothing";
  EXPECT_FALSE(read_safetensors_file(path, Bytes{100}).ok());
  std::filesystem::remove(path);
  EXPECT_EQ(read_safetensors_file(path).error().code(), Code::unavailable);
}

}  // namespace
}  // namespace troupe::train
