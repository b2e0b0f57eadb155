// Tests snapshots in files, and the differences between two snapshots.
#include "troupe/train/checkpoint/snapshot.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace troupe::train::snapshot_test {
namespace {

class SnapshotFiles : public testing::Test {
 protected:
  ~SnapshotFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path(const std::string& name = "a.safetensors") const { return folder_ + "/" + name; }

 private:
  static std::string make_folder() {
    std::string name = testing::TempDir() + "troupe_snapshot_XXXXXX";
    return ::mkdtemp(name.data());
  }
  std::string folder_ = make_folder();
};

NamedTensor tensor(std::string name, DType type, std::vector<std::int64_t> shape) {
  std::int64_t count = kernels::size_of(type);
  for (const std::int64_t size : shape) count *= size;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 37 + name.size());
  return {std::move(name), type, std::move(shape), std::move(bytes)};
}

std::string message_of(const std::string& path) {
  try {
    read_snapshot(path);
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "none";
}

TEST_F(SnapshotFiles, EveryTypeAndShapeComesBackByteForByte) {
  Snapshot saved{.step = 12345678901, .seed = 18446744073709551557u, .tensors = {}};
  for (const DType type :
       {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8}) {
    saved.tensors.push_back(tensor("b." + std::string(name_of(type)), type, {3, 5}));
    saved.tensors.push_back(tensor("a." + std::string(name_of(type)), type, {}));
  }
  saved.tensors.push_back(tensor("empty", DType::f32, {0, 7}));
  write_snapshot(path(), saved);
  const Snapshot read = read_snapshot(path());
  EXPECT_EQ(read.step, saved.step);
  EXPECT_EQ(read.seed, saved.seed);
  EXPECT_EQ(difference(read.tensors, saved.tensors), "");
  std::size_t compared = 0;
  for (const NamedTensor& want : saved.tensors)
    for (const NamedTensor& have : read.tensors)
      if (have.name == want.name) {
        EXPECT_EQ(have.bytes, want.bytes) << want.name;
        ++compared;
      }
  EXPECT_EQ(compared, saved.tensors.size());
  const std::filesystem::directory_iterator files(std::filesystem::path(path()).parent_path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "no temporary file is left";
}

TEST_F(SnapshotFiles, ALossScaleComesBackAndIsAbsentInFilesWithoutOne) {
  write_snapshot(path(), {.step = 3});
  EXPECT_FALSE(read_snapshot(path()).loss_scale.has_value());
  for (const float scale : {65536.0f, 0.1f, 1.1754944e-38f}) {
    write_snapshot(path(), {.step = 3, .loss_scale = LossScale{scale, 1999}});
    EXPECT_EQ(read_snapshot(path()).loss_scale, (LossScale{scale, 1999}));
  }
  for (const char* scale : {"", "x", "0", "-1", "inf", "nan"}) {
    write_safetensors_file(path(), {},
                           {{"troupe.snapshot", "1"},
                            {"step", "7"},
                            {"loss_scale", scale},
                            {"loss_scale.good_steps", "1"}})
        .value();
    EXPECT_NE(message_of(path()).find("loss scale"), std::string::npos) << scale;
  }
}

TEST_F(SnapshotFiles, TheStepOfTheFirstMomentsComesBack) {
  for (const std::int64_t since : {0, 5}) {
    write_snapshot(path(), {.step = 7, .moments_since = since});
    EXPECT_EQ(read_snapshot(path()).moments_since, since);
  }
  write_safetensors_file(path(), {},
                         {{"troupe.snapshot", "1"}, {"step", "7"}, {"moments_since", "x"}})
      .value();
  EXPECT_NE(message_of(path()).find("first moments"), std::string::npos);
}

TEST_F(SnapshotFiles, AFileWithoutVersionOrStepIsRefusedWithItsPath) {
  write_safetensors_file(path(), {}, {{"format", "pt"}}).value();
  EXPECT_NE(message_of(path()).find(path() + ": no snapshot"), std::string::npos);
  write_safetensors_file(path(), {}, {{"troupe.snapshot", "2"}, {"step", "1"}}).value();
  EXPECT_NE(message_of(path()).find("version 2"), std::string::npos);
  for (const char* step : {"", "-1", "1x", "99999999999999999999"}) {
    write_safetensors_file(path(), {}, {{"troupe.snapshot", "1"}, {"step", step}}).value();
    EXPECT_NE(message_of(path()).find("step"), std::string::npos) << step;
  }
  write_safetensors_file(path(), {}, {{"troupe.snapshot", "1"}, {"step", "7"}}).value();
  EXPECT_EQ(read_snapshot(path()).step, 7);
  EXPECT_EQ(read_snapshot(path()).seed, 0u) << "a file without a seed";
  write_safetensors_file(path(), {}, {{"troupe.snapshot", "1"}, {"step", "7"}, {"seed", "-1"}})
      .value();
  EXPECT_NE(message_of(path()).find("seed"), std::string::npos);
}

TEST_F(SnapshotFiles, TypesThatNoTensorHasAreRefusedByName) {
  const std::byte byte{1};
  write_safetensors_file(path(), std::vector<FileTensor>{{"odd", FileType::i8, {1}, {&byte, 1}}},
                         {{"troupe.snapshot", "1"}, {"step", "7"}})
      .value();
  EXPECT_NE(message_of(path()).find("tensor odd has the type I8"), std::string::npos);
}

/// Makes a file with this header and a hole after it, `size` bytes long in all. Returns false
/// when the file system has no sparse files of this size.
bool write_sparse(const std::string& path, const std::string& header, std::uint64_t size) {
  const std::uint64_t length = header.size();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(&length), sizeof length)
      .write(header.data(), static_cast<std::streamsize>(length));
  std::error_code problem;
  std::filesystem::resize_file(path, size, problem);
  return !problem;
}

TEST_F(SnapshotFiles, AHeaderThatClaimsAnExabyteIsRefused) {
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4611686018427387904]}})";
  for (const std::uint64_t size : {std::uint64_t{1} << 10, std::uint64_t{1} << 20}) {
    ASSERT_TRUE(write_sparse(path(), header, size));
    EXPECT_NE(message_of(path()).find(path() + ": not a safetensors file"), std::string::npos);
  }
}

TEST_F(SnapshotFiles, AHeaderThatIsTrueOfAHoleCostsNoMoreThanTheMachineHas) {
  // The header announces 4 TiB of zeros: no machine has so much memory.
  const std::string header =
      R"({"__metadata__":{"troupe.snapshot":"1","step":"1"},)"
      R"("a":{"dtype":"U8","shape":[4398046511104],"data_offsets":[0,4398046511104]}})";
  if (!write_sparse(path(), header, 8 + header.size() + 4398046511104))
    GTEST_SKIP() << "the file system has no files of that size";
  EXPECT_THROW(read_snapshot(path()), OutOfMemory);
}

TEST_F(SnapshotFiles, AWriteThatFailsLeavesTheOldFile) {
  const Snapshot old{.step = 1, .tensors = {tensor("a", DType::f32, {4})}};
  write_snapshot(path(), old);
  const Snapshot twice{.step = 2,
                       .tensors = {tensor("a", DType::f32, {4}), tensor("a", DType::f32, {4})}};
  EXPECT_THROW(write_snapshot(path(), twice), InvalidArgument);
  Snapshot cut{.step = 3, .tensors = {tensor("a", DType::f32, {4})}};
  cut.tensors[0].bytes.pop_back();
  EXPECT_THROW(write_snapshot(path(), cut), InvalidArgument);
  EXPECT_EQ(read_snapshot(path()).step, 1);
  EXPECT_THROW(write_snapshot(path("no/such/folder"), old), Unavailable);
  EXPECT_THROW(read_snapshot(path("missing")), Unavailable);
}

std::string differs(const std::vector<NamedTensor>& have, const std::vector<NamedTensor>& want) {
  return difference(have, want);
}

TEST(SnapshotDifference, NamesTheFirstTensorThatDiffers) {
  const NamedTensor a = tensor("a", DType::f32, {2}), b = tensor("b", DType::f32, {3});
  EXPECT_EQ(differs({a, b}, {b, a}), "");
  EXPECT_EQ(differs({}, {}), "");
  EXPECT_EQ(differs({a}, {a, b}), "tensor b is missing");
  EXPECT_EQ(differs({a, b}, {a}), "tensor b is not wanted");
  EXPECT_EQ(differs({a, b, a}, {a, b}), "tensor a is there twice");
  EXPECT_EQ(differs({tensor("a", DType::f32, {2, 1})}, {a}),
            "tensor a is f32[2, 1], and f32[2] is wanted");
  EXPECT_EQ(differs({tensor("a", DType::bf16, {2})}, {a}),
            "tensor a is bf16[2], and f32[2] is wanted");
}

}  // namespace
}  // namespace troupe::train::snapshot_test
