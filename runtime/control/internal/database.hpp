/// The interface to RocksDB, which is a plug-in beside libtroupe.so. Control opens it with the
/// first data folder. It is not linked to the library, since it would slow the start of each
/// driver, agent and worker.
///
///     auto door = rocks::door();                                 // Unavailable: no plug-in
///     std::unique_ptr<rocks::Database> db;
///     rocks::Status status = (*door)->open(path, true, db);
///
/// The plug-in does not link the library, so only types that need none of its code pass here.
#pragma once

#include "troupe/runtime/control/store.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe::control::rocks {

struct Status {
  enum class Kind : std::uint8_t { ok, no_space, damaged, failed };
  Kind kind = Kind::ok;
  std::string text;  ///< RocksDB's own words
  bool ok() const noexcept { return kind == Kind::ok; }
};

/// An open database; its destructor closes it. StoreMedium says what write, get and scan do.
class Database {
 public:
  virtual ~Database() = default;
  virtual Status write(std::span<const Write> writes) = 0;
  virtual Status get(std::string_view key, std::optional<std::string>& value) = 0;
  virtual Status scan(std::string_view prefix, const Visit& visit) = 0;
};

struct Door {
  /// Opens the database in the folder. With `create` it must not exist yet, else it must. A record
  /// cut by a crash at the end of the log was never acknowledged and is dropped. Any other fault is
  /// damage.
  Status (*open)(const std::string& path, bool create, std::unique_ptr<Database>& db);
  /// Opens as much of a damaged database as can be read.
  Status (*open_leniently)(const std::string& path, std::unique_ptr<Database>& db);
  Status (*repair)(const std::string& path);
};

/// Returns the plug-in's functions. The first call opens the plug-in and blocks for as long as that
/// takes.
Result<const Door*> door();

inline constexpr char kPlugin[] = "libtroupe_rocksdb.so";
inline constexpr char kDoor[] = "troupe_rocksdb_door";

}  // namespace troupe::control::rocks
