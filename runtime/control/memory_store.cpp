#include "troupe/runtime/control/memory_store.hpp"

#include "troupe/runtime/control/codec.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <algorithm>
#include <map>
#include <utility>

namespace troupe::control {
namespace {

constexpr std::size_t kSector = 512;
constexpr std::size_t kFrameHead = 16;  // payload size, checksum
constexpr std::uint64_t kCompactAbove = 1 << 20;

std::string frame(std::string payload) {
  RecordWriter head(0);
  head.u64(payload.size()).u64(XXH64(payload.data(), payload.size(), 0));
  return head.take().substr(1) + payload;
}

std::string encode(std::span<const Write> writes) {
  RecordWriter out(1);
  out.u64(writes.size());
  for (const Write& write : writes)
    out.bytes(write.key).boolean(write.value.has_value()).bytes(write.value.value_or(""));
  return out.take();
}

}  // namespace

bool MemoryDisk::begin_step() {
  ++steps_;
  if (crashed_) return false;
  if (steps_to_crash_ > 0 && --steps_to_crash_ == 0) crashed_ = true;
  return !crashed_;
}

std::byte* MemoryDisk::random_byte() {
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

/// Replays the journal when it is made; keeps the map in memory.
class MemoryMedium final : public StoreMedium {
 public:
  explicit MemoryMedium(std::shared_ptr<MemoryDisk> disk) : disk_(std::move(disk)) {
    if (!disk_->settled_) {  // nothing was ever acknowledged: a first start that crashed leaves no
                             // trace
      disk_->journal_.clear();
      disk_->slots_ = {};
    }
    replay();
  }

  bool is_new() const override { return !disk_->settled_; }

  Result<void> settle() override {
    if (!disk_->begin_step()) return crash();
    disk_->settled_ = true;
    return {};
  }

  Result<void> write(std::span<const Write> writes) override {
    const std::string record = frame(encode(writes));
    if (!disk_->begin_step()) {
      if (disk_->steps_to_crash_ == 0 && std::exchange(tear_, false))
        disk_->journal_ += record.substr(0, disk_->random_.below(record.size() + 1));
      return crash();
    }
    disk_->journal_ += record;
    apply(writes);
    if (disk_->journal_.size() > kCompactAbove && disk_->journal_.size() > 4 * live_bytes())
      compact();
    return {};
  }

  Result<std::optional<std::string>> get(std::string_view key) override {
    const auto found = map_.find(key);
    if (found == map_.end()) return std::optional<std::string>();
    return std::optional<std::string>(found->second);
  }

  Result<void> scan(std::string_view prefix, const Visit& visit) override {
    for (auto it = map_.lower_bound(prefix); it != map_.end(); ++it) {
      if (it->first.compare(0, prefix.size(), prefix) != 0) break;
      visit(it->first, it->second);
    }
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

  void apply(std::span<const Write> writes) {
    for (const Write& write : writes) {
      if (write.value)
        map_[write.key] = *write.value;
      else
        map_.erase(write.key);
    }
  }

  /// Stops at the first frame that is cut or damaged and drops the rest: what RocksDB does at most.
  void replay() {
    std::string& journal = disk_->journal_;
    std::size_t at = 0;
    while (journal.size() - at >= kFrameHead) {
      const std::string head_bytes = std::string(1, '\0') + journal.substr(at, kFrameHead);
      RecordReader head(head_bytes);
      const std::uint64_t size = head.u64();
      const std::uint64_t sum = head.u64();
      if (size > journal.size() - at - kFrameHead) break;
      const std::string_view payload(journal.data() + at + kFrameHead, size);
      if (XXH64(payload.data(), payload.size(), 0) != sum) break;
      replay_frame(payload);
      at += kFrameHead + size;
    }
    journal.resize(at);
  }

  void replay_frame(std::string_view payload) {
    RecordReader in(payload);
    for (std::uint64_t n = in.count(24); n > 0 && in.ok(); --n) {
      std::string key = in.bytes();
      const bool present = in.boolean();
      std::string value = in.bytes();
      if (!in.ok()) break;
      if (present)
        map_[std::move(key)] = std::move(value);
      else
        map_.erase(key);
    }
  }

  std::uint64_t live_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : map_) bytes += key.size() + value.size() + 24;
    return bytes;
  }

  void compact() {
    std::vector<Write> all;
    for (const auto& [key, value] : map_) all.push_back({key, value});
    disk_->journal_ = frame(encode(all));
  }

  std::shared_ptr<MemoryDisk> disk_;
  std::map<std::string, std::string, std::less<>> map_;
  bool tear_ = true;  ///< only the step that crashes tears; later ones do nothing
};

Result<std::unique_ptr<Store>> open_memory_store(std::shared_ptr<MemoryDisk> disk,
                                                 StoreOptions options) {
  return Store::open(std::make_unique<MemoryMedium>(std::move(disk)), options);
}

}  // namespace troupe::control
