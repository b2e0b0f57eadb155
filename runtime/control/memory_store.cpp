#include "troupe/runtime/control/memory_store.hpp"

#include "troupe/runtime/control/internal/journal.hpp"

#include <algorithm>
#include <utility>

namespace troupe::control {
namespace {

constexpr std::size_t kSector = 512;
constexpr std::size_t kMark = 64;  ///< first bytes of a slot, which hold the mark

}  // namespace

bool MemoryDisk::begin_step() {
  ++steps_;
  if (crashed_) return false;
  if (steps_to_crash_ > 0 && --steps_to_crash_ == 0) crashed_ = true;
  return !crashed_;
}

/// Returns a byte of the journal or of a slot. Every third one is of a mark, since marks are small
/// and would hardly be hit otherwise.
std::byte* MemoryDisk::random_byte() {
  if (random_.chance(0.33)) return slots_[random_.below(2)].data() + random_.below(kMark);
  const std::size_t total = journal_.size() + 2 * kSlotSize;
  const std::size_t at = random_.below(total);
  if (at < journal_.size()) return reinterpret_cast<std::byte*>(journal_.data()) + at;
  return slots_[(at - journal_.size()) / kSlotSize].data() + (at - journal_.size()) % kSlotSize;
}

bool MemoryDisk::flip_bit() {
  if (journal_.empty()) return false;
  *random_byte() ^= static_cast<std::byte>(1u << random_.below(8));
  return true;
}

bool MemoryDisk::cut_tail() {
  if (journal_.empty()) return false;
  journal_.resize(random_.below(journal_.size()));
  return true;
}

bool MemoryDisk::zero_part() {
  if (journal_.empty()) return false;
  if (random_.chance(0.3)) {
    Slot& slot = slots_[random_.below(2)];
    const std::size_t from = random_.below(kSlotSize);
    std::fill_n(slot.begin() + static_cast<std::ptrdiff_t>(from),
                std::min(kSector, kSlotSize - from), std::byte{0});
    return true;
  }
  const std::size_t from = random_.below(journal_.size());
  std::fill_n(journal_.begin() + static_cast<std::ptrdiff_t>(from),
              std::min(kSector, journal_.size() - from), '\0');
  return true;
}

bool MemoryDisk::swap_slots_with(MemoryDisk& other) {
  std::swap(slots_, other.slots_);
  return settled_;
}

bool MemoryDisk::drop_slots() {
  slots_ = {};
  return settled_;
}

/// Replays the journal in its constructor and keeps the map in memory.
class MemoryMedium final : public StoreMedium {
 public:
  explicit MemoryMedium(std::shared_ptr<MemoryDisk> disk) : disk_(std::move(disk)) {
    if (!disk_->settled_) {  // an earlier start crashed before it acknowledged anything: begin anew
      disk_->journal_.clear();
      disk_->slots_ = {};
    }
    disk_->journal_.resize(internal::replay(disk_->journal_, map_));
  }

  bool is_new() const override { return !disk_->settled_; }

  Result<void> settle() override {
    if (!disk_->begin_step()) return crash();
    disk_->settled_ = true;
    return {};
  }

  Result<void> write(std::span<const Write> writes) override {
    const std::string record = internal::journal_record(writes);
    if (!disk_->begin_step()) {
      if (disk_->steps_to_crash_ == 0 && std::exchange(tear_, false))
        disk_->journal_ += record.substr(0, disk_->random_.below(record.size() + 1));
      return crash();
    }
    disk_->journal_ += record;
    internal::apply(writes, map_);
    if (compaction_.is_due(disk_->journal_.size(), map_))
      disk_->journal_ = internal::journal_record(map_);
    return {};
  }

  Result<std::optional<std::string>> get(std::string_view key) override {
    return internal::get(map_, key);
  }

  Result<void> scan(std::string_view prefix, const Visit& visit) override {
    internal::scan(map_, prefix, visit);
    return {};
  }

  std::optional<Slot> read_slot(int index) override {
    return disk_->slots_[static_cast<std::size_t>(index)];
  }

  Result<void> write_slot(int index, const Slot& slot) override {
    Slot& target = disk_->slots_[static_cast<std::size_t>(index)];
    if (!disk_->begin_step()) {
      if (std::exchange(tear_, false)) {
        const std::size_t sectors = disk_->random_.below(kSlotSize / kSector + 1);
        std::copy_n(slot.begin(), sectors * kSector, target.begin());
      }
      return crash();
    }
    target = slot;
    return {};
  }

  Bytes free_space() override { return disk_->free_; }
  void use_reserve(bool) override {}
  std::string mark_name() const override { return "memory:mark"; }
  std::string data_name() const override { return "memory:journal"; }

 private:
  static Error crash() { return Error(Code::unavailable, "the disk is gone", Outcome::unknown); }

  std::shared_ptr<MemoryDisk> disk_;
  internal::JournalMap map_;
  internal::CompactionRule compaction_;
  bool tear_ = true;  ///< only the step that crashes tears; later ones do nothing
};

Result<std::unique_ptr<Store>> open_memory_store(std::shared_ptr<MemoryDisk> disk,
                                                 StoreOptions options) {
  return Store::open(std::make_unique<MemoryMedium>(std::move(disk)), options);
}

}  // namespace troupe::control
