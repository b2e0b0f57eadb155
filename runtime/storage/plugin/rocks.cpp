// The plug-in: RocksDB behind the interface of database.hpp. The library is not linked to
// it.
#include "troupe/runtime/storage/database.hpp"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <cstdarg>
#include <utility>

namespace troupe::storage {
namespace {

/// Drops RocksDB's own log. On a full disk, a log line after one that could not be written aborts
/// the process (an assertion of RocksDB's file writer). Errors come as a Status.
class NoLog final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::CompressionType lz4_if_there() {
  for (const rocksdb::CompressionType type : rocksdb::GetSupportedCompressions())
    if (type == rocksdb::kLZ4Compression) return type;
  return rocksdb::kNoCompression;
}

rocksdb::Options strict_options(const OpenOptions& wanted) {
  rocksdb::Options options;
  options.info_log = std::make_shared<NoLog>();
  options.create_if_missing = wanted.create;
  options.error_if_exists = wanted.create;
  options.paranoid_checks = true;
  options.wal_recovery_mode = wanted.to_a_point_in_time
                                  ? rocksdb::WALRecoveryMode::kPointInTimeRecovery
                                  : rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.track_and_verify_wals_in_manifest = true;
  options.compression = wanted.compress ? lz4_if_there() : rocksdb::kNoCompression;
  options.write_buffer_size = wanted.buffer;
  options.max_total_wal_size = wanted.most_log;
  options.max_background_jobs = 2;
  options.max_open_files = 256;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

rocksdb::Options lenient_options() {
  rocksdb::Options options;
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  options.paranoid_checks = false;
  options.track_and_verify_wals_in_manifest = false;
  options.compression = rocksdb::kNoCompression;
  options.info_log_level = rocksdb::FATAL_LEVEL;
  return options;
}

Status status_of(const rocksdb::Status& status) {
  if (status.ok()) return {};
  if (status.IsNoSpace()) return {Status::Kind::no_space, status.ToString()};
  const bool gone = status.IsIOError() && status.subcode() == rocksdb::Status::kPathNotFound;
  const bool damaged =
      gone || status.IsCorruption() || status.IsInvalidArgument() || status.IsNotFound();
  return {damaged ? Status::Kind::damaged : Status::Kind::failed, status.ToString()};
}

rocksdb::Slice slice(std::string_view text) {
  return {text.data(), text.size()};
}

class RocksDatabase final : public Database {
 public:
  explicit RocksDatabase(rocksdb::DB* db) : db_(db) {}

  Status write(std::span<const Write> writes, Durability durability) override {
    rocksdb::WriteBatch batch;
    for (const Write& write : writes) {
      const auto status =
          write.value ? batch.Put(write.key, *write.value) : batch.Delete(write.key);
      if (!status.ok()) return status_of(status);
    }
    rocksdb::WriteOptions options;
    options.sync = durability == Durability::synced;
    return status_of(db_->Write(options, &batch));
  }

  Status sync() override { return status_of(db_->SyncWAL()); }
  Status flush() override { return status_of(db_->Flush(rocksdb::FlushOptions())); }

  Status get(std::string_view key, std::optional<std::string>& value) override {
    const auto status = db_->Get(rocksdb::ReadOptions(), slice(key), &value.emplace());
    if (!status.ok()) value.reset();
    return status.IsNotFound() ? Status{} : status_of(status);
  }

  Status scan(std::string_view prefix, const Visit& visit) override {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(scan_options()));
    for (it->Seek(slice(prefix)); it->Valid() && it->key().starts_with(slice(prefix)); it->Next())
      visit(it->key().ToStringView(), it->value().ToStringView());
    return status_of(it->status());
  }

  Status scan_range(std::string_view first, std::string_view end, Direction direction,
                    const VisitWhile& visit) override {
    rocksdb::ReadOptions options = scan_options();
    const rocksdb::Slice lower = slice(first), upper = slice(end);
    options.iterate_lower_bound = &lower;
    options.iterate_upper_bound = &upper;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    const bool up = direction == Direction::up;
    for (up ? it->SeekToFirst() : it->SeekToLast(); it->Valid(); up ? it->Next() : it->Prev())
      if (!visit(it->key().ToStringView(), it->value().ToStringView())) break;
    return status_of(it->status());
  }

 private:
  static rocksdb::ReadOptions scan_options() {
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    options.fill_cache = false;
    return options;
  }

  std::unique_ptr<rocksdb::DB> db_;
};

Status open_with(const rocksdb::Options& options, const std::string& path,
                 std::unique_ptr<Database>& db) {
  rocksdb::DB* opened = nullptr;
  const auto status = rocksdb::DB::Open(options, path, &opened);
  if (status.ok()) db = std::make_unique<RocksDatabase>(opened);
  return status_of(status);
}

constexpr Door kTheDoor{
    [](const std::string& path, const OpenOptions& options, std::unique_ptr<Database>& db) {
      return open_with(strict_options(options), path, db);
    },
    [](const std::string& path, const OpenOptions& options, std::unique_ptr<Database>& db) {
      rocksdb::DB* opened = nullptr;
      const auto status = rocksdb::DB::OpenForReadOnly(strict_options(options), path, &opened);
      if (status.ok()) db = std::make_unique<RocksDatabase>(opened);
      return status_of(status);
    },
    [](const std::string& path, std::unique_ptr<Database>& db) {
      return open_with(lenient_options(), path, db);
    },
    [](const std::string& path) { return status_of(rocksdb::RepairDB(path, lenient_options())); },
};

}  // namespace
}  // namespace troupe::storage

extern "C" __attribute__((visibility("default"))) const troupe::storage::Door*
troupe_rocksdb_door() {
  return &troupe::storage::kTheDoor;
}
