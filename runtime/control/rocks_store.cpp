#include "troupe/runtime/control/rocks_store.hpp"

#include "troupe/runtime/control/folder.hpp"
#include "troupe/runtime/storage/damage.hpp"
#include "troupe/runtime/storage/database.hpp"

#include <memory>
#include <utility>

namespace troupe::control {
namespace {

class RocksMedium final : public StoreMedium {
 public:
  RocksMedium(StoreFolder folder, std::function<Bytes()> free_space)
      : folder_(std::move(folder)), free_space_(std::move(free_space)) {}

  Result<void> open() {
    auto door = storage::door();
    if (!door) return door.error();
    const auto status = (*door)->open(folder_.db_path(), {.create = folder_.is_new()}, db_);
    if (!status.ok()) return error_of(status, "cannot open");
    return {};
  }

  bool is_new() const override { return folder_.is_new(); }
  Result<void> settle() override { return folder_.settle(); }

  Result<void> write(std::span<const Write> writes) override {
    const auto status = db_->write(writes, storage::Durability::synced);
    if (!status.ok()) return error_of(status, "cannot write");
    return {};
  }

  Result<std::optional<std::string>> get(std::string_view key) override {
    std::optional<std::string> value;
    const auto status = db_->get(key, value);
    if (!status.ok()) return error_of(status, "cannot read");
    return value;
  }

  Result<void> scan(std::string_view prefix, const Visit& visit) override {
    const auto status = db_->scan(prefix, visit);
    if (!status.ok()) return error_of(status, "cannot read");
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
  Error error_of(const storage::Status& status, const std::string& what) const {
    if (status.kind == storage::Status::Kind::no_space)
      return Error(Code::no_space, what + " " + folder_.db_path() + ": " + status.text,
                   Outcome::unknown);
    if (status.kind == storage::Status::Kind::damaged) {
      const std::string where = storage::find_damage(folder_.db_path());
      return Error(Code::invalid_argument,
                   "control's data is damaged: " +
                       (where.empty() ? folder_.db_path() : "first bad record in " + where) + ": " +
                       status.text +
                       "; control does not start on it, since acknowledged records may be missing. "
                       "Put back an intact copy, or see what can be saved with `troupe doctor "
                       "--salvage " +
                       folder_.db_path() + "`");
    }
    return Error(Code::unavailable, what + " " + folder_.db_path() + ": " + status.text,
                 Outcome::unknown);
  }

  StoreFolder folder_;  // outlives the database: it holds the lock
  std::function<Bytes()> free_space_;
  std::unique_ptr<storage::Database> db_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_rocks_store(const std::string& path,
                                                RocksStoreOptions options) {
  auto folder = StoreFolder::open(path, options.reserve);
  if (!folder) return folder.error();
  auto medium = std::make_unique<RocksMedium>(std::move(*folder), std::move(options.free_space));
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
