// Tests the safetensors format byte by byte, files of other programs, and files with false
// contents.
#include "troupe/train/checkpoint/safetensors.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace troupe::train {
namespace {

Blob file_of(const std::string& header, std::size_t data = 0, std::uint64_t claimed = ~0ull) {
  const std::uint64_t length = claimed == ~0ull ? header.size() : claimed;
  Blob bytes(8 + header.size() + data);
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string error_of(const std::string& header, std::size_t data = 0,
                     std::uint64_t claimed = ~0ull) {
  const auto result = parse_safetensors(file_of(header, data, claimed));
  return result ? "none" : result.error().message();
}

TEST(Safetensors, WritesTheExactBytes) {
  const float f[] = {1, 2};
  const std::uint8_t u[] = {7};
  const std::vector<FileTensor> tensors = {
      {"u", FileType::u8, {1}, std::as_bytes(std::span(u))},
      {"w", FileType::f32, {2, 1}, std::as_bytes(std::span(f))},
  };
  const Blob bytes = write_safetensors(tensors, {{"step", "3"}});
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  std::string header(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  header.erase(header.find_last_not_of(' ') + 1);
  EXPECT_EQ(
      header,
      R"({"__metadata__":{"step":"3"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("u":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})");
  EXPECT_EQ(bytes.size(), 8 + length + 9);
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are to be the same
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + length, f, 8), 0);
}

TEST(Safetensors, ReadsWhatItWrote) {
  const std::vector<double> d = {1.5, -2.5};
  const std::vector<FileTensor> tensors = {
      {"scalar \"quoted\" \xc3\xa9", FileType::f64, {}, std::as_bytes(std::span(d).first(1))},
      {"empty", FileType::bf16, {0, 5}, {}},
      {"two", FileType::i64, {2, 1}, std::as_bytes(std::span(d))},
  };
  auto file = parse_safetensors(write_safetensors(tensors, {{"a", "b"}})).value();
  EXPECT_EQ(file.metadata, (Metadata{{"a", "b"}}));
  ASSERT_EQ(file.tensors.size(), 3u);
  for (const FileTensor& tensor : tensors) {
    const FileTensor* read = file.find(tensor.name);
    ASSERT_NE(read, nullptr) << tensor.name;
    EXPECT_EQ(read->type, tensor.type);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_TRUE(std::equal(read->bytes.begin(), read->bytes.end(), tensor.bytes.begin(),
                           tensor.bytes.end()));
  }
}

TEST(Safetensors, ReadsAnEmptyFileAndOtherOrders) {
  EXPECT_EQ(error_of("{}   "), "none");
  EXPECT_EQ(error_of(R"({"b":{"shape":[],"data_offsets":[4,5],"dtype":"BOOL"},)"
                     R"("a":{"dtype":"F32","data_offsets":[0,4],"shape":[1]}})",
                     5),
            "none");
}

TEST(Safetensors, FilesThatLieAreRefusedWithAReason) {
  const std::string a = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  auto one = [](const std::string& fields) { return R"({"a":{)" + fields + "}}"; };
  auto refused = [](const std::string& error, const char* why) {
    EXPECT_NE(error.find(why), std::string::npos) << error << " should say " << why;
  };
  EXPECT_EQ(error_of(one(a), 4), "none");
  EXPECT_FALSE(parse_safetensors({}).ok());
  refused(error_of("{}", 0, 1000), "past the end");
  refused(error_of("{}", 0, 200'000'000), "100,000,000");
  refused(error_of("{}", 0, ~0ull - 1), "100,000,000");
  refused(error_of(""), "begin with {");
  refused(error_of(" {}"), "begin with {");
  refused(error_of("[]"), "begin with {");
  refused(error_of("{"), "not JSON");
  refused(error_of("{} x"), "not JSON");
  refused(error_of("{\"\xff\":{}}"), "not JSON");
  refused(error_of(one(a), 3), "do not fit");
  refused(error_of(one(a), 5), "left over");
  refused(error_of(R"({"a":{)" + a + R"(},"a":{)" + a + "}}", 4), "same name");
  refused(error_of(one(a + R"(,"dtype":"F32")"), 4), "field twice");
  refused(error_of(one(a + R"(,"more":"x")"), 4), "unknown field");
  refused(error_of(one(R"("dtype":"F32","shape":[1])"), 4), "lacks a field");
  refused(error_of(one(R"("dtype":"F4","shape":[1],"data_offsets":[0,4])"), 4), "unknown type");
  refused(error_of(one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4), "negative");
  refused(error_of(one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4),
          "not an integer");
  refused(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), 4), "more than two");
  refused(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4), "fewer than two");
  refused(error_of(one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4), "do not fit");
  refused(error_of(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4), "do not fit");
  refused(error_of(one(R"("dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,4])"), 4),
          "impossible shape");
  refused(error_of(one(R"("dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4])"), 4),
          "integer");
  refused(error_of(one(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), 4), "not expected");
  refused(error_of(one(R"("dtype":{"x":{}},"shape":[1],"data_offsets":[0,4])"), 4), "too deep");
  refused(error_of(R"({"a":"x"})"), "not expected");
  refused(error_of(R"({"__metadata__":{"a":1}})"), "not expected");
  refused(error_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "same name");
  refused(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                   6),
          "overlap");
  refused(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                   12),
          "hole");
}

TEST(Safetensors, DeepNestingDoesNotOverflowTheStack) {
  EXPECT_NE(error_of(R"({"a":)" + std::string(1'000'000, '[')), "none");
  EXPECT_NE(error_of(R"({"a":{"shape":)" + std::string(1'000'000, '[')), "none");
}

// Any change of a valid file gives tensors inside the file or a refusal, never a crash.
TEST(Safetensors, MutatedFilesNeverBreakTheReader) {
  const float f[] = {1, 2, 3};
  const std::vector<FileTensor> tensors = {
      {"weight", FileType::f32, {3}, std::as_bytes(std::span(f))}};
  const Blob good = write_safetensors(tensors, {{"k", "v"}});
  Random random(11);
  for (int i = 0; i < 3000; ++i) {
    Blob bad = good;
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n)
      bad[random.below(bad.size())] = static_cast<std::byte>(random());
    if (random.chance(0.2)) bad.resize(random.below(bad.size() + 1));
    const auto file = parse_safetensors(std::move(bad));
    if (!file) continue;
    const BlobView storage = file->storage;
    for (const FileTensor& tensor : file->tensors)
      if (!tensor.bytes.empty()) {
        ASSERT_GE(tensor.bytes.data(), storage.data());
        ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), storage.data() + storage.size());
      }
  }
}

TEST(Safetensors, WritingRefusesWhatCannotBeRead) {
  const float f[] = {1};
  const auto bytes = std::as_bytes(std::span(f));
  const FileTensor good{"a", FileType::f32, {1}, bytes};
  EXPECT_THROW(write_safetensors(std::vector<FileTensor>{good, good}), InvalidArgument);
  EXPECT_THROW(write_safetensors(std::vector<FileTensor>{{"a", FileType::f32, {2}, bytes}}),
               InvalidArgument);
  EXPECT_THROW(
      write_safetensors(std::vector<FileTensor>{{"__metadata__", FileType::f32, {1}, bytes}}),
      InvalidArgument);
  EXPECT_THROW(write_safetensors(std::vector<FileTensor>{{"\xff", FileType::f32, {1}, bytes}}),
               InvalidArgument);
}

}  // namespace
}  // namespace troupe::train
