/// RocksDB as control uses it: a plug-in beside libtroupe.so, opened with the first data folder.
/// Only control needs it, and linked to the library it was half of what each driver, agent and
/// worker took to start.
///
///     auto door = rocks::door();                                 // Unavailable: no plug-in
///     std::unique_ptr<rocks::Database> db;
///     rocks::Status status = (*door)->open(path, true, db);
///
/// The plug-in knows nothing of the library, so only the standard library's types pass here.
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

/// Closed by its destructor. What StoreMedium promises of write, get and scan.
class Database {
 public:
  virtual ~Database() = default;
  virtual Status write(std::span<const Write> writes) = 0;
  virtual Status get(std::string_view key, std::optional<std::string>& value) = 0;
  virtual Status scan(std::string_view prefix, const Visit& visit) = 0;
};

struct Door {
  /// The database in the folder, which is there or not as `create` says. A record cut by a crash at
  /// the end of the log was never acknowledged; anything else that is wrong is damage.
  Status (*open)(const std::string& path, bool create, std::unique_ptr<Database>& db);
  /// As much of it as can be read.
  Status (*open_leniently)(const std::string& path, std::unique_ptr<Database>& db);
  Status (*repair)(const std::string& path);
};

/// The plug-in's. Opened once; blocks for as long as that takes.
Result<const Door*> door();

inline constexpr char kPlugin[] = "libtroupe_rocksdb.so";
inline constexpr char kDoor[] = "troupe_rocksdb_door";

}  // namespace troupe::control::rocks
