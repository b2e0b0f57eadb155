/// Control's durable state: an ordered map of byte strings in which an acknowledged commit is never
/// lost without being noticed.
///
///     auto store = open_rocks_store(folder, {});             // or open_memory_store(disk, {})
///     Batch batch; batch.put("job/7", record); batch.del("job/6");
///     store.value()->commit({&batch, 1}).value();            // durable when it returns
///     store.value()->scan("job/", [](auto key, auto value) { … });
///
/// How loss is noticed. A commit has three steps:
/// 1. Commit n writes its changes and, under `chain/n`, a link of a hash chain. The link covers the
///    commit's bytes and a digest of the *whole* map after the commit.
/// 2. The medium is synced.
/// 3. A mark (n, chain, epoch, checksum) goes by synchronous write into the older of two 4 KiB
///    slots. Only then is the commit acknowledged.
/// open() takes the valid mark with the highest n and requires that link n gives the same chain
/// value. It follows a longer unbroken chain: those commits were synced but never acknowledged. It
/// requires that the digest of all keys found equals the digest in the last link. Hence it refuses
/// a lost tail, a lost middle, a stale or foreign copy of a file, and a flipped bit. The digest is
/// the sum of the entries' hashes (incremental multiset hashing, Clarke et al. 2003).
///
/// Not thread-safe. All functions that read or write the medium block on the disk; commit() and
/// open() belong on a thread of their own.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/runtime/storage/database.hpp"
#include "troupe/runtime/storage/disk_space.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::control {

using storage::Visit;
using storage::Write;

/// Changes that become visible together or not at all. A later write to the same key wins.
class Batch {
 public:
  void put(std::string key, std::string value) {
    writes_.push_back({std::move(key), std::move(value)});
  }
  void del(std::string key) { writes_.push_back({std::move(key), std::nullopt}); }
  void append(Batch other) {
    for (auto& write : other.writes_) writes_.push_back(std::move(write));
  }
  bool empty() const noexcept { return writes_.empty(); }
  std::span<const Write> writes() const noexcept { return writes_; }

 private:
  std::vector<Write> writes_;
};

inline constexpr std::size_t kSlotSize = 4096;
using Slot = std::array<std::byte, kSlotSize>;

/// The storage below a Store: an atomic, durable map and two mark slots. Three kinds exist: RocksDB
/// in a folder, a plain file, and a disk in memory. The rules of chain, digest and marks are in
/// Store only.
class StoreMedium {
 public:
  virtual ~StoreMedium();
  /// Returns whether nothing was ever acknowledged here. Store then writes its first commit and
  /// calls settle().
  virtual bool is_new() const = 0;
  /// Records that the first commit and both marks are durable. A missing mark is damage from then
  /// on.
  virtual Result<void> settle() = 0;
  /// Applies all writes as one atomic unit; durable when it returns.
  virtual Result<void> write(std::span<const Write> writes) = 0;
  virtual Result<std::optional<std::string>> get(std::string_view key) = 0;
  /// Visits the keys that begin with `prefix`, in byte order.
  virtual Result<void> scan(std::string_view prefix, const Visit& visit) = 0;
  /// Returns nullopt when the slot cannot be read in full.
  virtual std::optional<Slot> read_slot(int index) = 0;
  /// Durable when it returns.
  virtual Result<void> write_slot(int index, const Slot& slot) = 0;
  virtual Bytes free_space() = 0;
  /// Gives up the space kept in reserve (true: space is short), or allocates it again (false).
  /// Cheap to repeat.
  virtual void use_reserve(bool use) = 0;
  /// Names the mark and the data in messages: `/x/mark`, `/x/db`.
  virtual std::string mark_name() const = 0;
  virtual std::string data_name() const = 0;
};

struct StoreOptions {
  /// Below this much free space ordinary commits answer no_space. They are accepted again as soon
  /// as there is more.
  Bytes low_water = storage::kLowWater;
  /// Below this much free space essential commits (fences, epochs) answer no_space too: RocksDB
  /// aborts the process on a full disk.
  Bytes floor = storage::kFloor;
  /// A commit larger than this answers invalid_argument before anything is written.
  Bytes max_commit{32ull << 20};
  /// The id of a store that is created; zero: random. The simulator sets it, so that a seed
  /// repeats.
  SessionId identity{};
  /// The first epoch of a store that is created.
  Epoch first_epoch = 1;
};

/// What open() found, for the log line.
struct Recovery {
  bool created = false;
  std::uint64_t commits = 0;         ///< number of the last commit found
  std::uint64_t unacknowledged = 0;  ///< commits found beyond the one that the mark names
  bool mark_repaired = false;        ///< one of the two slots was unreadable
};

/// Which commits a nearly full disk still takes. essential: down to `floor`, so that deaths and
/// fences are written. ordinary: refused below `low_water`.
enum class Need : std::uint8_t { ordinary, essential };

class Store {
 public:
  /// Checks the store as the top of this file says and begins a new epoch. Errors:
  /// invalid_argument when the folder is damaged or not a store (names file, offset and the command
  /// to run), no_space below the floor, unavailable for I/O errors.
  static Result<std::unique_ptr<Store>> open(std::unique_ptr<StoreMedium> medium,
                                             StoreOptions options);

  /// The content of a mark.
  struct Marked {
    std::uint64_t commits = 0;  ///< number of the commit that it acknowledges
    Epoch epoch = 0;
  };
  /// Returns nullopt when the slot holds no valid mark.
  static std::optional<Marked> read_mark(const std::optional<Slot>& slot);

  /// Commits all batches, in order, as one durable and atomic unit with one sync and one mark.
  /// Errors: after no_space and invalid_argument nothing was written. After any other error the
  /// outcome is unknown, every later commit fails, and the process must start again and recover.
  /// Empty groups cost nothing.
  Result<void> commit(std::span<const Batch> group, Need need = Need::ordinary);

  /// Returns whether an ordinary commit would be accepted now (one statvfs). Ask *before* a core
  /// takes a request that writes. Otherwise the core's memory would hold a change whose commit is
  /// refused.
  bool accepts_writes();

  /// Visits the keys with this prefix in byte order, except the store's internal keys.
  Result<void> scan(std::string_view prefix, const Visit& visit);
  Result<std::optional<std::string>> get(std::string_view key);

  /// The number of this start of control on the store. It is durable before open() returns.
  Epoch epoch() const noexcept { return epoch_; }
  std::uint64_t commits() const noexcept { return number_; }
  const Recovery& recovery() const noexcept { return recovery_; }
  StoreMedium& medium() noexcept { return *medium_; }

 private:
  struct Hash {
    std::uint64_t high = 0, low = 0;
    friend bool operator==(const Hash&, const Hash&) = default;
  };
  struct Link;
  struct Mark;
  Store(std::unique_ptr<StoreMedium> medium, StoreOptions options);
  static Hash hash_of(std::string_view bytes);
  static Hash entry_hash(std::string_view key, std::string_view value);
  static Hash chain_of(std::uint64_t number, const Link& link);
  static std::optional<Mark> decode(const std::optional<Slot>& slot);

  Result<void> create();
  Result<void> recover();
  Result<void> follow_chain(const Mark& best);
  Result<void> check_digest(const Link& last);
  Result<void> check_space(Need need);
  Result<void> apply(std::span<const Batch> group, bool internal);
  Result<void> write_mark();
  Error damaged(const std::string& where, const std::string& what) const;

  std::unique_ptr<StoreMedium> medium_;
  StoreOptions options_;
  SessionId store_id_;  ///< ties the mark to the data
  std::uint64_t number_ = 0;
  Hash chain_;
  Hash digest_;
  Epoch epoch_ = 0;
  int next_slot_ = 0;
  bool failed_ = false;
  Recovery recovery_;
};

}  // namespace troupe::control
