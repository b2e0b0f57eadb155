// Tests how NCCL is found, with libraries that only look like it.
#include "tests/paths.hpp"
#include "troupe/actors/collective/nccl/internal/library.hpp"

#include <gtest/gtest.h>

#include <stdlib.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace troupe::collective::nccl {
namespace {

namespace fs = std::filesystem;
using Values = std::map<std::string, std::string>;

Environment environment_of(const Values& values) {
  return Environment([&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}
std::vector<std::string> places(const Values& values) {
  return candidates(environment_of(values));
}

std::string refusal(const std::vector<std::string>& paths) {
  try {
    (void)open_library(paths);
  } catch (const Unavailable& e) {
    return e.message();
  }
  return "";
}

struct Tree {
  fs::path root;
  Tree() {
    std::string name = (fs::temp_directory_path() / "troupe-nccl-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root = name;
  }
  ~Tree() { fs::remove_all(root); }
  std::string file(const std::string& path) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << "no library";
    return root / path;
  }
};

TEST(NcclLibrary, TheVariableIsTheOnlyPlaceWhenItIsSet) {
  EXPECT_EQ(places({{"TROUPE_NCCL", "/opt/nccl.so"}, {"CUDA_HOME", "/x"}}),
            std::vector<std::string>{"/opt/nccl.so"});
}

TEST(NcclLibrary, OperationsAreSynchronisedByOneAndByNothingElse) {
  const Values none, off{{"TROUPE_NCCL_SYNCHRONIZE", "0"}}, on{{"TROUPE_NCCL_SYNCHRONIZE", "1"}},
      wrong{{"TROUPE_NCCL_SYNCHRONIZE", "yes"}};
  EXPECT_FALSE(synchronizes(environment_of(none)));
  EXPECT_FALSE(synchronizes(environment_of(off)));
  EXPECT_TRUE(synchronizes(environment_of(on)));
  try {
    (void)synchronizes(environment_of(wrong));
    FAIL() << "yes was taken";
  } catch (const InvalidArgument& e) {
    EXPECT_EQ(e.message(), "TROUPE_NCCL_SYNCHRONIZE is 'yes': give 0 or 1");
  }
}

TEST(NcclLibrary, TheLoadersComesFirstThenTheToolkitsThenPips) {
  const Tree tree;
  const std::string pip =
      tree.file("venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
  const std::string toolkit = tree.file("cuda/lib64/libnccl.so.2");
  const auto all = places({{"CUDA_HOME", tree.root / "cuda"}, {"VIRTUAL_ENV", tree.root / "venv"}});
  const auto place = [&](const std::string& path) {
    return std::find(all.begin(), all.end(), path) - all.begin();
  };
  EXPECT_EQ(all.front(), "libnccl.so.2");
  EXPECT_EQ(place(toolkit), 1);
  EXPECT_GT(place(pip), 1);
  EXPECT_LT(place(pip), std::ssize(all));
}

TEST(NcclLibrary, TheFirstThatLoadsIsTaken) {
  const Library nccl =
      open_library({"/no/such/libnccl.so.2", paths::fake_nccl(), paths::fake_nccl_old()});
  EXPECT_EQ(nccl.path, paths::fake_nccl());
  EXPECT_EQ(nccl.version, 22809);
  EXPECT_EQ(version_text(nccl.version), "2.28.9");
}

TEST(NcclLibrary, AnErrorHasTheWordsOfTheLibrary) {
  const Library nccl = open_library({paths::fake_nccl()});
  EXPECT_NO_THROW(nccl.check(0, "ncclGroupEnd"));
  try {
    nccl.check(nccl.group_end(), "ncclGroupEnd");
    FAIL() << "it must throw";
  } catch (const Unavailable& e) {
    EXPECT_EQ(e.message(), "ncclGroupEnd: a fake error (its detail)");
  }
}

TEST(NcclLibrary, AnotherVersionIsRefusedWithWhatIsNeeded) {
  const std::string why = refusal({paths::fake_nccl_old(), paths::fake_nccl()});
  EXPECT_NE(why.find(" is NCCL 2.10.3; troupe needs 2.19.3 or later"), std::string::npos) << why;
}

TEST(NcclLibrary, ALibraryThatLacksAFunctionIsRefusedByItsName) {
  const std::string why = refusal({paths::fake_nccl_part()});
  EXPECT_NE(why.find("it has no ncclRecv"), std::string::npos) << why;
}

TEST(NcclLibrary, WhereNoneIsAllPlacesAreNamed) {
  const Tree tree;
  const std::string why = refusal({"/no/such/libnccl.so.2", tree.file("libnccl.so.2")});
  EXPECT_EQ(why.find("NCCL is not there (name it in TROUPE_NCCL"), 0u) << why;
  EXPECT_NE(why.find("/no/such/libnccl.so.2: "), std::string::npos) << why;
  EXPECT_NE(why.find((tree.root / "libnccl.so.2").string() + ": "), std::string::npos) << why;
}

}  // namespace
}  // namespace troupe::collective::nccl
