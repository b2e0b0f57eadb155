// Tests that a crash in a library with debug information gets function, file and line, and that
// other builds, broken files and slow look-ups get none, in time.
#include "troupe/runtime/os/stack_lines.hpp"

#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "tests/paths.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/plug_in.hpp"
#include "troupe/runtime/os/internal/stack_door.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace troupe::os {
namespace stack_lines_test {
namespace {

using namespace std::chrono_literals;

class StackLinesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kLeeway > 2) GTEST_SKIP() << "a sanitizer handles the signals";
#ifndef TROUPE_HAS_LIBDW
    GTEST_SKIP() << "this build has no libdw";
#endif
    const auto door = find_in_plug_in(internal::kStackPlugin, internal::kStackDoor);
    ASSERT_TRUE(door.ok()) << door.error().message();
  }
  void TearDown() override {
    if (!copy_.empty()) std::filesystem::remove(copy_);
  }

  /// Returns the frames of a child that crashed in this library.
  std::vector<CrashFrame> crash_in(const std::string& library) {
    const Fd file(memfd_create("crash", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(file.get(), kCrashBytes), 0);
    void* const memory =
        mmap(nullptr, kCrashBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    const pid_t child = fork();
    if (child == 0) {
      const rlimit none{};
      setrlimit(RLIMIT_CORE, &none);
      record_crashes({static_cast<std::byte*>(memory), kCrashBytes});
      void* const opened = dlopen(library.c_str(), RTLD_NOW);
      if (opened != nullptr) reinterpret_cast<void (*)()>(dlsym(opened, "sample_crash"))();
      _exit(1);
    }
    int status = 0;
    EXPECT_TRUE(eventually([&] { return waitpid(child, &status, WNOHANG) == child; }));
    EXPECT_TRUE(WIFSIGNALED(status));
    munmap(memory, kCrashBytes);
    const auto report = read_crash(file.get());
    EXPECT_TRUE(report.ok());
    return report ? report->frames : std::vector<CrashFrame>();
  }
  /// Copies the sample, with a change to its bytes, and returns the copy's path.
  template <class Change>
  std::string changed_copy(Change change) {
    std::ifstream from(paths::os_sample(), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(from), std::istreambuf_iterator<char>()};
    change(bytes);
    copy_ = testing::TempDir() + "stack_lines_" + std::to_string(getpid()) + ".so";
    std::ofstream(copy_, std::ios::binary) << bytes;
    return copy_;
  }

  std::string copy_;
};

TEST_F(StackLinesTest, ACrashGetsFunctionsFilesAndLines) {
  const auto frames = crash_in(paths::os_sample());
  ASSERT_GE(frames.size(), 3u);
  const Time before = steady_now();
  StackLines found;
  const auto lines = found.look_up(frames);
  EXPECT_LT(steady_now() - before, 2s * kLeeway);
  ASSERT_EQ(lines.size(), frames.size());
  const std::string expected[] = {
      "sample::(anonymous namespace)::fall(int volatile*) at sample.cpp:6 (",
      "sample::walk(int volatile*) at sample.cpp:12 (", "sample_crash at sample.cpp:19 ("};
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(text_of(lines[i]).find(expected[i]), 0u) << text_of(lines[i]);
  EXPECT_NE(text_of(lines[0]).find("sample.so+0x"), std::string::npos) << text_of(lines[0]);
}

TEST_F(StackLinesTest, WhatWasFoundIsKept) {
  const auto frames = crash_in(paths::os_sample());
  StackLines found;
  const auto first = found.look_up(frames);
  const auto again = found.look_up(frames, Duration(0));  // no time for another look
  ASSERT_GE(again.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(text_of(again[i]), text_of(first[i]));
  EXPECT_FALSE(again[0].file.empty());
}

TEST_F(StackLinesTest, NoTimeMeansNoLines) {
  const auto frames = crash_in(paths::os_sample());
  StackLines found;
  for (const StackLine& line : found.look_up(frames, Duration(0))) EXPECT_TRUE(line.file.empty());
}

TEST_F(StackLinesTest, AnotherBuildGivesNoLines) {
  auto frames = crash_in(paths::os_sample());
  ASSERT_FALSE(frames.empty());
  ASSERT_FALSE(frames[0].build_id.empty());
  frames[0].build_id[0] = frames[0].build_id[0] == '0' ? '1' : '0';
  frames.resize(1);
  StackLines found;
  const auto lines = found.look_up(frames);
  EXPECT_TRUE(lines[0].file.empty() && lines[0].function.empty());
  EXPECT_EQ(text_of(lines[0]).find(frames[0].module.substr(frames[0].module.rfind('/') + 1)), 0u);
}

TEST_F(StackLinesTest, DamagedDebugInformationEndsInTime) {
  auto frames = crash_in(paths::os_sample());
  ASSERT_GE(frames.size(), 3u);
  frames.resize(3);
  const std::string copy = changed_copy([](std::string& bytes) {
    Elf64_Ehdr head;
    std::memcpy(&head, bytes.data(), sizeof head);
    for (std::size_t i = 0; i < head.e_shnum; ++i) {
      Elf64_Shdr section;
      std::memcpy(&section, bytes.data() + head.e_shoff + i * sizeof section, sizeof section);
      if (section.sh_type != SHT_PROGBITS || (section.sh_flags & SHF_ALLOC) != 0) continue;
      for (std::size_t k = 0; k < section.sh_size; k += 3)
        bytes[section.sh_offset + k] = static_cast<char>(0xff);
    }
  });
  for (CrashFrame& frame : frames) frame.module = copy;  // its build-id is the same
  const Time before = steady_now();
  StackLines found;
  for (const StackLine& line : found.look_up(frames)) EXPECT_TRUE(line.file.empty());
  EXPECT_LT(steady_now() - before, 3s * kLeeway);
}

TEST_F(StackLinesTest, FilesThatAreGoneGiveNoLines) {
  auto frames = crash_in(paths::os_sample());
  ASSERT_FALSE(frames.empty());
  frames[0].module = "/no/such/\x1b[2J/file.so";
  frames.resize(1);
  const auto lines = StackLines().look_up(frames);
  EXPECT_TRUE(lines[0].file.empty());
  EXPECT_EQ(text_of(lines[0]).find('\x1b'), std::string::npos);
  EXPECT_TRUE(StackLines().look_up({}).empty());
}

}  // namespace
}  // namespace stack_lines_test
}  // namespace troupe::os
