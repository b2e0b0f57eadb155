// Tests damaged copies of control's folder. Each copy is either refused with the place of the
// damage, or it has everything that was acknowledged. CI tries some hundred copies; to try more:
//
//     TROUPE_DAMAGED=10000 TROUPE_DAMAGED_FIRST=1 runtime_control_test --gtest_filter='DamagedFolders.*'
#include "tests/runtime/control/folders.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace troupe::control {
namespace {

using namespace folders;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Returns the files that can be damaged: all but the lock and the logs that RocksDB writes for
/// people.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && entry.file_size() > 0 && name != "lock" &&
        name.rfind("LOG", 0) != 0)
      files.push_back(fs::relative(entry.path(), folder));
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// A folder as it was after each of its lives, and the records that the last life acknowledged.
struct Folder {
  std::vector<std::string> lives;
  Map model;
  const std::string& last() const { return lives.back(); }
};

/// Returns a folder in memory where there is one: a thousand stores are made and read, and none
/// must last.
fs::path place() {
  const fs::path memory = "/dev/shm";
  const bool in_memory = std::getenv("TMPDIR") == nullptr && ::access(memory.c_str(), W_OK) == 0;
  return in_memory ? memory : fs::temp_directory_path();
}

class DamagedFolders : public folders::Test {
 protected:
  DamagedFolders() : Test(place()) {}

  /// Makes a folder in `lives` lives, each with `commits` commits of values of `bytes` bytes.
  /// Each opening leaves tables and manifests.
  Folder make(const std::string& name, int lives, int commits, std::size_t bytes) {
    Folder folder;
    const std::string data = root_ + "/" + name;
    for (int life = 0; life < lives; ++life) {
      {
        auto store = open_rocks_store(data, options()).value();
        for (int i = 0; i < commits; ++i) {
          Batch batch;
          const std::string key = "k/" + std::to_string((life * commits + i) % (2 * commits));
          if (i % 7 == 6) {
            batch.del(key);
            folder.model.erase(key);
          } else {
            folder.model[key] = std::string(bytes, static_cast<char>('a' + i % 26)) +
                                std::to_string(life) + "." + std::to_string(i);
            batch.put(key, folder.model[key]);
          }
          EXPECT_TRUE(store->commit({&batch, 1}).ok());
        }
      }
      folder.lives.push_back(data + "." + std::to_string(life));
      fs::copy(data, folder.lives.back(), fs::copy_options::recursive);
    }
    return folder;
  }

  /// Damages the copy and returns what it did. Returns an empty text when the copy cannot be told
  /// from the original.
  static std::string damage(const fs::path& copy, const Folder& folder, Random& random) {
    const auto files = files_of(copy);
    const fs::path& file = files[random.below(files.size())];
    const std::string before = slurp(copy / file), name = file.string();
    std::string bytes = before;
    const std::size_t at = random.below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    std::string what;
    switch (random.below(10)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        what = "a bit";
        break;
      case 1:
        bytes.resize(at);
        what = "cut";
        break;
      case 2:
        std::fill_n(place, std::min<std::size_t>(1 + random.below(600), bytes.size() - at), '\0');
        what = "zeros";
        break;
      case 3: {
        const std::size_t page = at / 4096 * 4096;
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(page),
                    std::min<std::size_t>(4096, bytes.size() - page), '\0');
        what = "a zeroed page";
        break;
      }
      case 4: {
        const auto half = bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2);
        std::swap_ranges(bytes.begin(), half, half);
        what = "exchanged halves";
        break;
      }
      case 5: {
        const fs::path& other = files[random.below(files.size())];
        if (other == file) return "";
        bytes = slurp(copy / other);
        spill(copy / other, before);
        what = "exchanged with " + other.string();
        break;
      }
      case 6: fs::remove(copy / file); return name + ": removed";
      case 7: {
        const fs::path old = fs::path(folder.lives[random.below(folder.lives.size() - 1)]) / file;
        if (!fs::exists(old)) return "";
        bytes = slurp(old);
        what = "an old copy";
        break;
      }
      case 8: {  // the whole database is an old copy, but the mark is new
        fs::remove_all(copy / "db");
        fs::copy(fs::path(folder.lives[random.below(folder.lives.size() - 1)]) / "db", copy / "db",
                 fs::copy_options::recursive);
        return "db: an old copy";
      }
      default:
        bytes.append(1 + random.below(5000), static_cast<char>(random.below(256)));
        what = "appended to";
        break;
    }
    if (bytes == before && what.rfind("exchanged with", 0) != 0) return "";
    spill(copy / file, bytes);
    return name + ": " + what + " at " + std::to_string(at);
  }
};

TEST_F(DamagedFolders, AreRefusedWithAWordWhereOrHaveEverythingThatWasAcknowledged) {
  const std::array<Folder, 3> folders = {make("small", 3, 25, 40), make("many", 6, 60, 20),
                                         make("large", 4, 20, 3000)};
  for (const Folder& folder : folders) {
    const std::string copy = root_ + "/healthy";
    fs::copy(folder.last(), copy, fs::copy_options::recursive);
    {
      auto store = open_rocks_store(copy, options());
      ASSERT_TRUE(store.ok()) << store.error().what();
      EXPECT_EQ(contents(**store), folder.model);
    }
    fs::remove_all(copy);
  }
  const std::uint64_t first = number_from("TROUPE_DAMAGED_FIRST", 1);
  const std::uint64_t count = number_from("TROUPE_DAMAGED", 200);
  std::uint64_t done = 0, refused = 0, with_offset = 0, whole = 0, silent = 0;
  for (std::uint64_t seed = first; done < count; ++seed) {
    SCOPED_TRACE("TROUPE_DAMAGED_FIRST=" + std::to_string(seed));
    Random random(seed);
    const Folder& folder = folders[random.below(folders.size())];
    const std::string copy = root_ + "/copy";
    fs::copy(folder.last(), copy, fs::copy_options::recursive);
    const std::string what = damage(copy, folder, random);
    if (what.empty()) {
      fs::remove_all(copy);
      continue;
    }
    ++done;
    auto store = open_rocks_store(copy, options());
    if (store.ok()) {
      ++whole;
      const bool lost = contents(**store) != folder.model;
      silent += lost ? 1 : 0;
      EXPECT_FALSE(lost) << "silent loss: " << what;
      store = Error(Code::cancelled, "closed");
    } else {
      ++refused;
      const std::string& text = store.error().message();
      EXPECT_EQ(store.error().code(), Code::invalid_argument) << what << ": " << text;
      EXPECT_NE(text.find(copy + "/"), std::string::npos) << what << ": " << text;
      with_offset += text.find("offset") != std::string::npos ? 1 : 0;
    }
    fs::remove_all(copy);
  }
  std::printf(
      "%llu damaged folders: %llu refused (%llu of them by offset), %llu whole, %llu silent "
      "losses\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(refused),
      static_cast<unsigned long long>(with_offset), static_cast<unsigned long long>(whole),
      static_cast<unsigned long long>(silent));
  if (count >= 200) {
    EXPECT_GT(refused, count / 3);
    EXPECT_GT(with_offset, count / 10);
  }
}

}  // namespace
}  // namespace troupe::control
