// Tests paths that are no safetensors files. Each is refused in under a second, and no memory is
// taken for the sizes that a file claims.
#include "troupe/train/checkpoint/safetensors.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace troupe::train {
namespace {

using std::chrono::seconds;

struct SafetensorsFiles : testing::Test {
  std::string folder;
  void SetUp() override {
    std::string text = testing::TempDir() + "troupe-safetensors-XXXXXX";
    ASSERT_NE(::mkdtemp(text.data()), nullptr);
    folder = text;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string path(const std::string& name) const { return folder + "/" + name; }

  /// Makes a file of `size` bytes that begins with this length word and header, with a hole after
  /// them.
  std::string sparse(const std::string& name, std::uint64_t length, const std::string& header,
                     std::uint64_t size) const {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    bytes += header;
    const Fd file(::open(path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(size)), 0);
    return path(name);
  }
  /// Returns the error of reading the file. It must come at once and take no memory.
  static Error refused(const std::string& path) {
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const Time begun = steady_now();
    const auto file = read_safetensors_file(path);
    EXPECT_LT(steady_now() - begun, seconds(1)) << path;
    ::getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << path;  // KiB
    if (!file) return file.error();
    ADD_FAILURE() << path << " was read";
    return Error(Code::internal, "");
  }
};

constexpr std::uint64_t kGiB = 1 << 30;

TEST_F(SafetensorsFiles, AFifoIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(refused(path("fifo")).code(), Code::unavailable);
}

TEST_F(SafetensorsFiles, WritersOfOnePathDoNotDisturbOneAnother) {
  constexpr int kWriters = 4, kWrites = 20;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w)
    writers.emplace_back([this, w] {
      const std::vector<std::byte> bytes(50'000 + w, static_cast<std::byte>(w));
      const FileTensor tensor{"w", FileType::u8, {std::ssize(bytes)}, bytes};
      for (int i = 0; i < kWrites; ++i) {
        const auto written = write_safetensors_file(path("shared"), std::span(&tensor, 1));
        EXPECT_TRUE(written) << written.error().what();
        const auto read = read_safetensors_file(path("shared"));
        ASSERT_TRUE(read) << read.error().what();
        const BlobView all = read->tensors.at(0).bytes;
        EXPECT_EQ(all.size(), 50'000 + static_cast<std::size_t>(all[0])) << "of one writer";
        EXPECT_EQ(std::count(all.begin(), all.end(), all[0]), std::ssize(all));
      }
    });
  for (std::thread& writer : writers) writer.join();
  const std::filesystem::directory_iterator files(folder);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "no temporary file is left";
}

TEST_F(SafetensorsFiles, WhatIsNoFileIsRefused) {
  EXPECT_EQ(refused(folder).code(), Code::unavailable);
  EXPECT_EQ(refused("/dev/zero").code(), Code::unavailable);
  EXPECT_EQ(refused(path("none")).code(), Code::unavailable);
}

TEST_F(SafetensorsFiles, ASparseFileIsRefusedBeforeMemoryIsTaken) {
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{100'000'000},
        std::uint64_t{100'000'001}, ~std::uint64_t{0}}) {
    EXPECT_EQ(refused(sparse("a", length, "", 16 * kGiB)).code(), Code::invalid_argument);
    EXPECT_EQ(refused(sparse("b", length, "{", 16 * kGiB)).code(), Code::invalid_argument);
  }
  const std::string header = R"({"a":{"dtype":"F32","shape":[1024],"data_offsets":[0,4096]}})";
  EXPECT_EQ(refused(sparse("c", header.size(), header, 16 * kGiB)).code(), Code::invalid_argument)
      << "bytes are left over";
  EXPECT_EQ(refused(sparse("d", header.size(), header, 17 * kGiB)).code(), Code::invalid_argument)
      << "beyond the limit";
}

TEST_F(SafetensorsFiles, AHeaderThatIsTrueOfAHoleCostsNoMoreThanTheMachineHas) {
  // The header announces 4,096 GiB of zeros: no machine has so much memory.
  const std::uint64_t floats = 1024 * kGiB;
  const std::string header = R"({"a":{"dtype":"F32","shape":[)" + std::to_string(floats) +
                             R"(],"data_offsets":[0,)" + std::to_string(4 * floats) + "]}}";
  const std::uint64_t size = 8 + header.size() + 4 * floats;
  const std::string name = sparse("e", header.size(), header, 8 + header.size());
  if (::truncate(name.c_str(), static_cast<off_t>(size)) != 0)
    GTEST_SKIP() << "the file system has no files of that size";
  const Time begun = steady_now();
  const auto file = read_safetensors_file(name, Bytes{~0ull});
  EXPECT_LT(steady_now() - begun, seconds(1));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), Code::out_of_memory) << file.error().what();
}

}  // namespace
}  // namespace troupe::train
