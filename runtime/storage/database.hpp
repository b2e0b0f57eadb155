/// The interface to RocksDB, which is a plug-in beside libtroupe.so. The first data folder opens
/// it. It is not linked to the library, since it would slow the start of each driver, agent and
/// worker.
///
///     auto door = storage::door();                               // Unavailable: no plug-in
///     std::unique_ptr<storage::Database> db;
///     storage::Status status = (*door)->open(path, {.create = true}, db);
///
/// The plug-in does not link the library, so only types that need none of its code pass here.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe::storage {

/// One change of one key; no value means delete.
struct Write {
  std::string key;
  std::optional<std::string> value;
};

using Visit = std::function<void(std::string_view key, std::string_view value)>;
/// Returns whether the scan goes on.
using VisitWhile = std::function<bool(std::string_view key, std::string_view value)>;

struct Status {
  enum class Kind : std::uint8_t { ok, no_space, damaged, failed };
  Kind kind = Kind::ok;
  std::string text;  ///< RocksDB's own words
  bool ok() const noexcept { return kind == Kind::ok; }
};

/// How long a write lives when write() has returned. kernel: it survives the end of this process,
/// though not a power failure. synced: it survives both.
enum class Durability : std::uint8_t { kernel, synced };
enum class Direction : std::uint8_t { up, down };

/// An open database; its destructor closes it. Thread-safe.
class Database {
 public:
  virtual ~Database() = default;
  /// Applies all writes as one atomic unit.
  virtual Status write(std::span<const Write> writes, Durability durability) = 0;
  /// Makes durable what write() has returned for. Blocks on the disk. Writes may go on meanwhile.
  virtual Status sync() = 0;
  /// Moves the log's records to tables, so that the log is short. Blocks on the disk.
  virtual Status flush() = 0;
  virtual Status get(std::string_view key, std::optional<std::string>& value) = 0;
  /// Visits the keys that begin with `prefix`, in byte order.
  virtual Status scan(std::string_view prefix, const Visit& visit) = 0;
  /// Visits the keys from `first` on and below `end`, in byte order, until `visit` returns false.
  /// Direction::down visits the same keys from the last one on.
  virtual Status scan_range(std::string_view first, std::string_view end, Direction direction,
                            const VisitWhile& visit) = 0;
};

struct OpenOptions {
  bool create = false;  ///< the database must not exist yet; else it must
  /// What follows the first bad record of the log is dropped. Else only a record cut by a crash at
  /// the end is dropped, since it was never acknowledged, and any other fault is damage.
  bool to_a_point_in_time = false;
  bool compress = false;            ///< tables, if RocksDB was built with LZ4
  std::size_t buffer = 16 << 20;    ///< bytes in memory before they are moved to a table
  std::size_t most_log = 64 << 20;  ///< bytes of all logs
};

struct Door {
  Status (*open)(const std::string& path, const OpenOptions& options,
                 std::unique_ptr<Database>& db);
  /// Opens a database that nothing changes meanwhile, and writes nothing. Write, sync and flush
  /// fail.
  Status (*open_to_read)(const std::string& path, const OpenOptions& options,
                         std::unique_ptr<Database>& db);
  /// Opens as much of a damaged database as can be read.
  Status (*open_leniently)(const std::string& path, std::unique_ptr<Database>& db);
  Status (*repair)(const std::string& path);
};

/// Returns the plug-in's functions. The first call opens the plug-in and blocks for as long as that
/// takes. Errors: Unavailable.
Result<const Door*> door();

inline constexpr char kPlugin[] = "libtroupe_rocksdb.so";
inline constexpr char kDoor[] = "troupe_rocksdb_door";

}  // namespace troupe::storage
