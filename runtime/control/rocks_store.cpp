#include "troupe/runtime/control/rocks_store.hpp"

#include "troupe/runtime/control/folder.hpp"

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>
#include <cstdarg>
#include <memory>
#include <utility>

namespace troupe::control {
namespace {

/// RocksDB's own log of its doings goes nowhere: on a full disk a line that cannot be written made
/// the next one abort the process (an assertion of its file writer). Errors come as a Status.
class NoLog final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::Options database_options(bool create) {
  rocksdb::Options options;
  options.info_log = std::make_shared<NoLog>();
  options.create_if_missing = create;
  options.error_if_exists = create;
  options.paranoid_checks = true;
  // A record cut by a crash at the end of the log was never acknowledged; anything else is damage.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.track_and_verify_wals_in_manifest = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 16 << 20;
  options.max_total_wal_size = 64 << 20;
  options.max_background_jobs = 2;
  options.max_open_files = 256;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

class RocksMedium final : public StoreMedium {
 public:
  RocksMedium(StoreFolder folder, std::function<Bytes()> free_space)
      : folder_(std::move(folder)), free_space_(std::move(free_space)) {}

  Result<void> open() {
    rocksdb::DB* db = nullptr;
    const auto status =
        rocksdb::DB::Open(database_options(folder_.is_new()), folder_.db_path(), &db);
    if (!status.ok()) return error_of(status, "cannot open");
    db_.reset(db);
    return {};
  }

  bool is_new() const override { return folder_.is_new(); }
  Result<void> settle() override { return folder_.settle(); }

  Result<void> write(std::span<const Write> writes) override {
    rocksdb::WriteBatch batch;
    for (const Write& write : writes) {
      const auto status =
          write.value ? batch.Put(write.key, *write.value) : batch.Delete(write.key);
      if (!status.ok()) return error_of(status, "cannot write");
    }
    rocksdb::WriteOptions options;
    options.sync = true;
    const auto status = db_->Write(options, &batch);
    if (!status.ok()) return error_of(status, "cannot write");
    return {};
  }

  Result<std::optional<std::string>> get(std::string_view key) override {
    std::string value;
    const auto status =
        db_->Get(rocksdb::ReadOptions(), rocksdb::Slice(key.data(), key.size()), &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return error_of(status, "cannot read");
    return std::optional<std::string>(std::move(value));
  }

  Result<void> scan(std::string_view prefix, const Visit& visit) override {
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    const rocksdb::Slice from(prefix.data(), prefix.size());
    for (it->Seek(from); it->Valid() && it->key().starts_with(from); it->Next())
      visit(it->key().ToStringView(), it->value().ToStringView());
    if (!it->status().ok()) return error_of(it->status(), "cannot read");
    return {};
  }

  std::optional<Slot> read_slot(int index) override { return folder_.read_slot(index); }
  Result<void> write_slot(int index, const Slot& slot) override {
    return folder_.write_slot(index, slot);
  }
  Bytes free_space() override { return free_space_ ? free_space_() : folder_.free_space(); }
  void use_reserve(bool use) override { folder_.use_reserve(use); }
  std::string mark_name() const override { return folder_.mark_path(); }
  std::string data_name() const override { return folder_.db_path(); }

 private:
  Error error_of(const rocksdb::Status& status, const std::string& what) const {
    if (status.IsNoSpace())
      return Error(Code::no_space, what + " " + folder_.db_path() + ": " + status.ToString(),
                   Outcome::unknown);
    if (status.IsCorruption() || status.IsInvalidArgument() || status.IsNotFound() ||
        (status.IsIOError() && status.subcode() == rocksdb::Status::kPathNotFound)) {
      const std::string where = find_damage(folder_.db_path());
      return Error(Code::invalid_argument,
                   "control's data is damaged: " +
                       (where.empty() ? folder_.db_path() : "first bad record in " + where) + ": " +
                       status.ToString() +
                       "; control does not start on it, since acknowledged records may be missing. "
                       "Put back an intact copy, or see what can be saved with `troupe doctor "
                       "--salvage " +
                       folder_.db_path() + "`");
    }
    return Error(Code::unavailable, what + " " + folder_.db_path() + ": " + status.ToString(),
                 Outcome::unknown);
  }

  StoreFolder folder_;  // outlives the database: it holds the lock
  std::function<Bytes()> free_space_;
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_rocks_store(const std::string& path,
                                                RocksStoreOptions options) {
  auto folder = StoreFolder::open(path, options.reserve);
  if (!folder) return folder.error();
  auto medium = std::make_unique<RocksMedium>(std::move(*folder), options.free_space);
  // RocksDB aborts the process when it finds the disk full while it opens: make room first.
  if (medium->free_space() < options.store.floor) medium->use_reserve(true);
  if (medium->free_space() < options.store.floor)
    return Error(Code::no_space,
                 "only " + std::to_string(medium->free_space().count >> 20) + " MiB are free at " +
                     medium->data_name() + ": control needs " +
                     std::to_string(options.store.floor.count >> 20) + " MiB to start");
  if (auto opened = medium->open(); !opened) return opened.error();
  return Store::open(std::move(medium), options.store);
}

}  // namespace troupe::control
