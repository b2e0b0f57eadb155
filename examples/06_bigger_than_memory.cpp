// Sorts a file ten times larger than the memory of its three nodes, while one of them is killed.
#include "support/06_bigger_than_memory.hpp"
#include "support/processes.hpp"
#include "troupe/troupe.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

using Keys = std::vector<std::uint64_t>;
using Pieces = sortfile::TupleOf<Keys, 16>;  // the keys of one block, for each of 16 buckets
constexpr std::size_t kBuckets = std::tuple_size_v<Pieces>;

struct Bucket {
  std::uint64_t count = 0, checksum = 0, first = 0, last = 0;
};

// Reads a block and divides its keys among the buckets. It is deterministic: if a node dies and
// takes pieces with it, troupe runs this task again when another task needs one of them.
Pieces deal(const std::string& path, std::uint64_t block, std::uint64_t keys, const Keys& limits) {
  Pieces pieces;
  const auto piece = sortfile::by_number(pieces);
  for (auto* one : piece) one->reserve(keys / kBuckets * 5 / 4);
  for (const std::uint64_t key : sortfile::read(path, block * keys, keys))
    piece[std::upper_bound(limits.begin(), limits.end(), key) - limits.begin()]->push_back(key);
  return pieces;
}

// Reads the pieces of one bucket, one after the other, and writes their keys sorted.
Bucket sort_bucket(troupe::Context& ctx, const std::vector<troupe::Ref<Keys>>& pieces,
                   const std::string& path) {
  Keys keys;
  for (const auto& piece : pieces) {
    const auto view = ctx.view(piece);  // from memory, from disk, or from another node
    keys.insert(keys.end(), view.begin(), view.end());
  }
  std::sort(keys.begin(), keys.end());
  sortfile::write(path, keys);
  return {keys.size(), sortfile::checksum(keys), keys.empty() ? 0 : keys.front(),
          keys.empty() ? 0 : keys.back()};
}

// Returns the keys that divide a sample of the file into buckets of about the same size.
Keys limits_of(const std::string& path, std::uint64_t keys) {
  Keys sample, limits;
  for (std::uint64_t i = 0; i < 1024; ++i)
    sample.push_back(sortfile::read(path, keys / 1024 * i, 1).front());
  std::sort(sample.begin(), sample.end());
  for (std::size_t i = 1; i < kBuckets; ++i) limits.push_back(sample[i * sample.size() / kBuckets]);
  return limits;
}

int main(int argc, char** argv) try {
  troupe::enter(argc, argv);
  const bool smoke = argc > 1 && std::strcmp(argv[1], "--smoke") == 0;
  const std::uint64_t mib = 1 << 20, arena = smoke ? 8 * mib : 64 * mib;
  const std::uint64_t file = smoke ? 96 * mib : 1920 * mib, block = smoke ? 2 * mib : 8 * mib;
  const sortfile::Folder folder;
  const std::uint64_t before = sortfile::make(folder / "input", file / 8, 42);
  std::printf("%lu MiB to sort on three nodes with %lu MiB each\n", file / mib, arena / mib);

  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{arena}, .nodes = 3});
  troupe::Context ctx = session.context();
  const int victim = processes::agent_of(ctx, ctx.cluster().nodes.back().id);

  const auto limits = ctx.put(limits_of(folder / "input", file / 8));
  std::vector<std::vector<troupe::Ref<Keys>>> buckets(kBuckets);
  for (std::uint64_t i = 0; i < file / block; ++i)
    sortfile::each(ctx.submit_split<deal>(folder / "input", i, block / 8, limits),
                   [&](std::size_t b, auto& piece) { buckets[b].push_back(std::move(piece)); });

  std::vector<troupe::Ref<Bucket>> sorted;
  for (std::size_t b = 0; b < kBuckets; ++b)
    sorted.push_back(ctx.submit<sort_bucket>(std::move(buckets[b]), folder / std::to_string(b)));

  Bucket all;
  bool in_order = true;
  for (std::size_t b = 0; b < kBuckets; ++b) {
    const Bucket bucket = ctx.get(sorted[b]);
    in_order = in_order && (all.count == 0 || bucket.count == 0 || all.last <= bucket.first) &&
               sortfile::is_sorted(folder / std::to_string(b), bucket.checksum);
    all = {all.count + bucket.count, all.checksum + bucket.checksum, 0,
           bucket.count == 0 ? all.last : bucket.last};
    if (b == kBuckets / 4 && processes::kill_now(victim)) std::puts("killed: a node");
  }
  const bool right = in_order && all.count == file / 8 && all.checksum == before;
  std::printf("%lu keys, checksum %016lx: %s\n", all.count, all.checksum,
              right ? "sorted, and the same keys" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}
