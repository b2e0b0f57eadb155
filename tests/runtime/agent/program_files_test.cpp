// Tests the files of programs on disk: digests, the cache's folder, what is removed from it, and
// the links to libraries. FILES-1: a folder of others is refused. FILES-2: files in use stay.
#include "troupe/runtime/agent/program_files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>

namespace troupe::agent::program_files_test {
namespace {

namespace fs = std::filesystem;

/// Of "abc", as FIPS 180-2 has it.
const std::string kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

struct ProgramFilesTest : testing::Test {
  fs::path root;

  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "troupe-files-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
  }
  void TearDown() override { fs::remove_all(root); }
  std::string file(const std::string& name, const std::string& bytes, std::time_t used = 0) {
    const std::string path = (root / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    const timespec times[2] = {{.tv_sec = used, .tv_nsec = 0}, {.tv_sec = used, .tv_nsec = 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }
};

TEST_F(ProgramFilesTest, ADigestIsThatOfTheContent) {
  const std::string path = file("a", "abc");
  const auto opened = open_regular(path);
  ASSERT_TRUE(opened);
  EXPECT_EQ(*digest_of(opened->get(), path), kAbc);
  EXPECT_TRUE(has_digest(path, kAbc));
  EXPECT_FALSE(has_digest(file("b", "abd"), kAbc));
  EXPECT_FALSE(has_digest((root / "missing").string(), kAbc));
  EXPECT_EQ(open_regular(root.string()).error().code(), Code::unavailable) << "no plain file";
}

TEST_F(ProgramFilesTest, TextsAreJudgedByTheirForm) {
  EXPECT_TRUE(is_digest(kAbc));
  EXPECT_FALSE(is_digest(kAbc.substr(1)));
  EXPECT_FALSE(is_digest("../" + kAbc.substr(3)));
  EXPECT_EQ(file_name_of("/usr/lib/liba.so"), "liba.so");
  EXPECT_EQ(file_name_of("/usr/lib/"), "");
}

TEST_F(ProgramFilesTest, AFolderThatOthersCanWriteIsRefused) {
  const std::string made = (root / "x" / "y").string();
  ASSERT_TRUE(make_folder(made));
  struct stat status{};
  ASSERT_EQ(stat(made.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_TRUE(make_folder(made)) << "it is there already";
  ASSERT_EQ(chmod(made.c_str(), 0770), 0);
  EXPECT_EQ(make_folder(made).error().code(), Code::invalid_argument);
  const std::string link = (root / "link").string();
  ASSERT_EQ(symlink(root.c_str(), link.c_str()), 0);
  EXPECT_EQ(make_folder(link).error().code(), Code::invalid_argument);
}

TEST_F(ProgramFilesTest, TheLeastRecentlyUsedGoFirstAndThoseInUseStay) {
  const std::string kept = file("kept", std::string(100, 'x'), 1);
  const std::string old = file("old", std::string(100, 'x'), 2);
  const std::string young = file("young", std::string(100, 'x'), 3);
  prune(root.string(), 300, {});
  EXPECT_TRUE(fs::exists(old));
  prune(root.string(), 200, {kept});
  EXPECT_TRUE(fs::exists(kept));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
  prune((root / "missing").string(), 0, {});
}

TEST_F(ProgramFilesTest, LibrariesAreLinkedUnderTheirOwnNames) {
  const std::string library = file("0123", "abc");
  const ProgramFiles files = {{"/bin/p", kAbc}, {"/lib/liba.so", kAbc}};
  const auto folder = link_libraries(root.string(), files, {"/bin/p", library});
  ASSERT_TRUE(folder);
  EXPECT_EQ(fs::read_symlink(*folder + "/liba.so").string(), library);
  EXPECT_EQ(*link_libraries(root.string(), files, {"/bin/p", library}), *folder);
  EXPECT_NE(*link_libraries(root.string(), files, {"/bin/p", "/elsewhere"}), *folder);
  const ProgramFiles twice = {{"/bin/p", kAbc}, {"/lib/liba.so", kAbc}, {"/opt/liba.so", kAbc}};
  EXPECT_EQ(link_libraries(root.string(), twice, {"/bin/p", library, library}).error().code(),
            Code::invalid_argument);
}

}  // namespace
}  // namespace troupe::agent::program_files_test
