/// Helpers of program 06: files of 64-bit keys, and tuples of N equal types.
#pragma once

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace sortfile {

template <class T, std::size_t>
using Same = T;
template <class T, std::size_t... I>
std::tuple<Same<T, I>...> tuple_of(std::index_sequence<I...>);
/// std::tuple<T, T, …> with N elements.
template <class T, std::size_t N>
using TupleOf = decltype(tuple_of<T>(std::make_index_sequence<N>()));

/// Returns pointers to the elements, in order.
template <class T, class... U>
std::array<T*, 1 + sizeof...(U)> by_number(std::tuple<T, U...>& tuple) {
  return std::apply(
      [](auto&... elements) { return std::array<T*, 1 + sizeof...(U)>{&elements...}; }, tuple);
}
/// Calls f(0, first), f(1, second), …
template <class Tuple, class F>
void each(Tuple tuple, const F& f) {
  std::apply(
      [&](auto&... elements) {
        std::size_t i = 0;
        (f(i++, elements), ...);
      },
      tuple);
}

/// A temporary folder, removed by the destructor.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("troupe-sort-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// An open file. The constructor throws when it cannot be opened; the destructor closes it.
class File {
 public:
  File(const std::string& path, const char* mode) : file_(std::fopen(path.c_str(), mode)) {
    if (file_ == nullptr) throw std::runtime_error("cannot open " + path);
  }
  File(const File&) = delete;
  ~File() { std::fclose(file_); }
  void append(const std::vector<std::uint64_t>& keys) {
    if (std::fwrite(keys.data(), 8, keys.size(), file_) != keys.size())
      throw std::runtime_error("the disk is full");
  }
  /// Reads so many keys, or fewer at the end of the file.
  std::vector<std::uint64_t> read(std::uint64_t keys) {
    std::vector<std::uint64_t> block(keys);
    block.resize(std::fread(block.data(), 8, keys, file_));
    return block;
  }
  void seek(std::uint64_t key) { std::fseek(file_, static_cast<long>(key * 8), SEEK_SET); }

 private:
  std::FILE* file_;
};

inline std::vector<std::uint64_t> read(const std::string& path, std::uint64_t first,
                                       std::uint64_t keys) {
  File file(path, "rb");
  file.seek(first);
  return file.read(keys);
}
inline void write(const std::string& path, const std::vector<std::uint64_t>& keys) {
  File(path, "wb").append(keys);
}

/// Returns a checksum that does not depend on the order of keys. It changes when a key is lost,
/// altered or duplicated.
inline std::uint64_t checksum(const std::vector<std::uint64_t>& keys) {
  std::uint64_t sum = 0;
  for (std::uint64_t x : keys) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    sum += (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  }
  return sum;
}

/// Writes a file of pseudo-random keys and returns their checksum.
inline std::uint64_t make(const std::string& path, std::uint64_t keys, std::uint64_t seed) {
  File file(path, "wb");
  std::uint64_t sum = 0, state = seed;
  while (keys > 0) {
    std::vector<std::uint64_t> block(std::min<std::uint64_t>(keys, 1 << 17));
    for (std::uint64_t& key : block) {
      state += 0x9e3779b97f4a7c15u;
      std::uint64_t x = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
      x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
      key = x ^ (x >> 31);
    }
    sum += checksum(block);
    file.append(block);
    keys -= block.size();
  }
  return sum;
}

/// Whether the keys of the file are in ascending order and have this checksum.
inline bool is_sorted(const std::string& path, std::uint64_t expected) {
  File file(path, "rb");
  std::uint64_t sum = 0, last = 0;
  for (auto keys = file.read(1 << 17); !keys.empty(); keys = file.read(1 << 17)) {
    for (const std::uint64_t key : keys)
      if (std::exchange(last, key) > key) return false;
    sum += checksum(keys);
  }
  return sum == expected;
}

}  // namespace sortfile
