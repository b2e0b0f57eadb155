#include "troupe/runtime/control/store.hpp"

#include "troupe/runtime/control/codec.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

namespace troupe::control {
namespace {

constexpr std::string_view kChainPrefix = "chain/";
constexpr std::string_view kMetaPrefix = "meta/";
constexpr const char* kStoreKey = "meta/store";
constexpr const char* kStoreEpochKey = "meta/epoch";
constexpr std::uint8_t kStoreFormat = 1;
/// How many links stay in the map. Recovery needs two, since the slots are at most one commit
/// apart. The others let the error message of a damaged folder name the last commit found.
constexpr std::uint64_t kLinksKept = 8;
constexpr char kMarkMagic[8] = {'T', 'R', 'P', 'M', 'A', 'R', 'K', '1'};
constexpr std::size_t kMaxKey = 4096;

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool is_internal(std::string_view key) {
  return starts_with(key, kChainPrefix) || starts_with(key, kMetaPrefix);
}

/// Has a fixed width, so that byte order is the order of the numbers.
std::string chain_key(std::uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "chain/%016llx", static_cast<unsigned long long>(number));
  return text;
}
std::optional<std::uint64_t> chain_number(std::string_view key) {
  std::uint64_t number = 0;
  if (key.size() != kChainPrefix.size() + 16) return std::nullopt;
  for (const char c : key.substr(kChainPrefix.size())) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    number = number * 16 + static_cast<std::uint64_t>(digit);
  }
  return number;
}

}  // namespace

StoreMedium::~StoreMedium() = default;

struct Store::Link {
  Hash previous;  ///< chain value of the commit before
  Hash batch;     ///< hash of the commit's writes
  Hash digest;    ///< of the whole map after it, links excluded

  std::string encode() const {
    RecordWriter out(kStoreFormat);
    for (const Hash& hash : {previous, batch, digest}) out.u64(hash.high).u64(hash.low);
    return out.take();
  }
  static std::optional<Link> parse(std::string_view bytes) {
    RecordReader in(bytes);
    Link link;
    for (Hash* hash : {&link.previous, &link.batch, &link.digest}) {
      hash->high = in.u64();
      hash->low = in.u64();
    }
    if (!in.ok() || !in.at_end() || in.version() != kStoreFormat) return std::nullopt;
    return link;
  }
};

struct Store::Mark {
  SessionId store;
  std::uint64_t number = 0;
  Hash chain;
  Epoch epoch = 0;
};

Store::Hash Store::hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Store::Hash Store::entry_hash(std::string_view key, std::string_view value) {
  RecordWriter out(kStoreFormat);
  out.bytes(key).bytes(value);
  return hash_of(out.take());
}

Store::Hash Store::chain_of(std::uint64_t number, const Link& link) {
  RecordWriter out(kStoreFormat);
  out.u64(number).bytes(link.encode());
  return hash_of(out.take());
}

Store::Store(std::unique_ptr<StoreMedium> medium, StoreOptions options)
    : medium_(std::move(medium)), options_(options) {}

Error Store::damaged(const std::string& where, const std::string& what) const {
  return Error(Code::invalid_argument,
               "control's data is damaged: " + where + ": " + what +
                   "; control does not start on it, since acknowledged records may be missing. Put "
                   "back an intact copy, or see what can be saved with `troupe doctor --salvage " +
                   medium_->data_name() + "`");
}

Result<std::unique_ptr<Store>> Store::open(std::unique_ptr<StoreMedium> medium,
                                           StoreOptions options) {
  std::unique_ptr<Store> store(new Store(std::move(medium), options));
  if (auto space = store->check_space(Need::essential); !space) return space.error();
  auto opened = store->medium_->is_new() ? store->create() : store->recover();
  if (!opened) return opened.error();
  return store;
}

Result<void> Store::create() {
  store_id_ = options_.identity ? options_.identity : SessionId::random();
  epoch_ = options_.first_epoch;
  recovery_.created = true;
  Batch first;
  first.put(kStoreKey, store_id_.str());
  first.put(kStoreEpochKey, RecordWriter(kStoreFormat).u64(epoch_).take());
  if (auto done = apply({&first, 1}, true); !done) return done;  // marks slot 0
  if (auto done = write_mark(); !done) return done;              // and slot 1: both are valid
  recovery_.commits = number_;
  return medium_->settle();
}

std::optional<Store::Mark> Store::decode(const std::optional<Slot>& slot) {
  if (!slot || std::memcmp(slot->data(), kMarkMagic, sizeof kMarkMagic) != 0) return std::nullopt;
  std::uint64_t sum = 0;
  std::memcpy(&sum, slot->data() + kSlotSize - sizeof sum, sizeof sum);
  if (XXH64(slot->data(), kSlotSize - sizeof sum, 0) != sum) return std::nullopt;
  RecordReader in(std::string_view(reinterpret_cast<const char*>(slot->data()) + sizeof kMarkMagic,
                                   kSlotSize - sizeof kMarkMagic));
  Mark mark;
  mark.store = in.id<SessionId>();
  mark.number = in.u64();
  mark.chain.high = in.u64();
  mark.chain.low = in.u64();
  mark.epoch = in.u64();
  if (in.version() != kStoreFormat) return std::nullopt;
  return mark;
}

std::optional<Store::Marked> Store::read_mark(const std::optional<Slot>& slot) {
  const auto mark = decode(slot);
  if (!mark) return std::nullopt;
  return Marked{mark->number, mark->epoch};
}

Result<void> Store::write_mark() {
  Slot slot{};
  std::memcpy(slot.data(), kMarkMagic, sizeof kMarkMagic);
  const std::string body = RecordWriter(kStoreFormat)
                               .id(store_id_)
                               .u64(number_)
                               .u64(chain_.high)
                               .u64(chain_.low)
                               .u64(epoch_)
                               .take();
  std::memcpy(slot.data() + sizeof kMarkMagic, body.data(), body.size());
  const std::uint64_t sum = XXH64(slot.data(), kSlotSize - sizeof(std::uint64_t), 0);
  std::memcpy(slot.data() + kSlotSize - sizeof sum, &sum, sizeof sum);
  if (auto done = medium_->write_slot(next_slot_, slot); !done) return done;
  next_slot_ = 1 - next_slot_;
  return {};
}

Result<void> Store::recover() {
  const std::array<std::optional<Mark>, 2> marks = {decode(medium_->read_slot(0)),
                                                    decode(medium_->read_slot(1))};
  if (!marks[0] && !marks[1])
    return damaged(medium_->mark_name(),
                   "neither the slot at offset 0 nor the one at offset 4096 is a valid mark");
  if (marks[0] && marks[1] && marks[0]->store != marks[1]->store)
    return damaged(medium_->mark_name(), "its two slots belong to different stores");
  const int best = !marks[0] ? 1 : !marks[1] ? 0 : marks[0]->number >= marks[1]->number ? 0 : 1;
  next_slot_ = 1 - best;
  recovery_.mark_repaired = !marks[0] || !marks[1];
  const Mark mark = *marks[static_cast<std::size_t>(best)];
  store_id_ = mark.store;
  if (auto chain = follow_chain(mark); !chain) return chain;

  auto stored = medium_->get(kStoreEpochKey);
  if (!stored) return stored.error();
  const std::string record = stored->value_or("");
  RecordReader in(record);
  const Epoch last = in.u64();
  if (!in.ok()) return damaged(medium_->data_name(), "the record of epochs cannot be read");
  epoch_ = std::max(last, mark.epoch) + 1;
  recovery_.commits = number_;
  recovery_.unacknowledged = number_ - mark.number;
  Batch start;
  start.put(kStoreEpochKey, RecordWriter(kStoreFormat).u64(epoch_).take());
  return apply({&start, 1}, true);
}

Result<void> Store::follow_chain(const Mark& best) {
  std::map<std::uint64_t, Link> links;
  bool readable = true;
  auto read = medium_->scan(kChainPrefix, [&](std::string_view key, std::string_view value) {
    const auto number = chain_number(key);
    const auto link = Link::parse(value);
    if (!number || !link)
      readable = false;
    else
      links.emplace(*number, *link);
  });
  if (!read) return read;
  if (!readable) return damaged(medium_->data_name(), "a link of the commit chain cannot be read");
  auto link = links.find(best.number);
  if (link == links.end())
    return damaged(
        medium_->data_name(),
        "commit " + std::to_string(best.number) +
            " was acknowledged but is not there (last one found: " +
            (links.empty() ? std::string("none") : std::to_string(links.rbegin()->first)) + ")");
  number_ = best.number;
  chain_ = chain_of(number_, link->second);
  if (!(chain_ == best.chain))
    return damaged(medium_->data_name(),
                   "commit " + std::to_string(number_) + " is another one than the marked");
  Link last = link->second;
  for (++link; link != links.end(); ++link) {
    if (link->first != number_ + 1 || !(link->second.previous == chain_))
      return damaged(medium_->data_name(),
                     "the commit chain breaks after " + std::to_string(number_));
    number_ = link->first;
    last = link->second;
    chain_ = chain_of(number_, last);
  }
  return check_digest(last);
}

Result<void> Store::check_digest(const Link& last) {
  digest_ = {};
  std::string id;
  auto read = medium_->scan("", [&](std::string_view key, std::string_view value) {
    if (starts_with(key, kChainPrefix)) return;
    if (key == kStoreKey) id = value;
    const Hash hash = entry_hash(key, value);
    digest_.high += hash.high;
    digest_.low += hash.low;
  });
  if (!read) return read;
  if (!(digest_ == last.digest))
    return damaged(medium_->data_name(),
                   "its records are not those that commit " + std::to_string(number_) + " left");
  if (id != store_id_.str())
    return damaged(medium_->mark_name(),
                   "it belongs to another store than " + medium_->data_name());
  return {};
}

bool Store::accepts_writes() {
  const Bytes free = medium_->free_space();
  if (free >= options_.low_water) medium_->use_reserve(false);
  return !failed_ && free >= options_.low_water;
}

Result<void> Store::check_space(Need need) {
  Bytes free = medium_->free_space();
  if (need == Need::essential && free < options_.floor) {
    medium_->use_reserve(true);
    free = medium_->free_space();
  } else if (free >= options_.low_water) {
    medium_->use_reserve(false);
  }
  const Bytes limit = need == Need::essential ? options_.floor : options_.low_water;
  if (free >= limit) return {};
  return Error(Code::no_space, "only " + std::to_string(free.count >> 20) + " MiB are free at " +
                                   medium_->data_name() + ", less than the " +
                                   std::to_string(limit.count >> 20) +
                                   " MiB below which control stops writing");
}

Result<void> Store::commit(std::span<const Batch> group, Need need) {
  if (failed_)
    return Error(Code::unavailable,
                 "an earlier commit failed: control must start again and recover",
                 Outcome::unknown);
  std::uint64_t bytes = 0;
  for (const Batch& batch : group)
    for (const Write& write : batch.writes()) {
      if (write.key.empty() || write.key.size() > kMaxKey || is_internal(write.key))
        return Error(Code::invalid_argument,
                     "a key must have 1 to 4096 bytes and not begin with chain/ or meta/");
      bytes += write.key.size() + (write.value ? write.value->size() : 0);
    }
  if (bytes > options_.max_commit.count)
    return Error(Code::invalid_argument, "a commit of " + std::to_string(bytes) +
                                             " bytes is over " +
                                             std::to_string(options_.max_commit.count));
  if (std::all_of(group.begin(), group.end(), [](const Batch& batch) { return batch.empty(); }))
    return {};
  if (auto space = check_space(need); !space) return space;
  return apply(group, false);
}

Result<void> Store::apply(std::span<const Batch> group, bool internal) {
  std::map<std::string_view, const std::optional<std::string>*>
      last;  // the last write of a key wins
  for (const Batch& batch : group)
    for (const Write& write : batch.writes()) last[write.key] = &write.value;

  Link link;
  link.previous = chain_;
  Hash digest = digest_;
  RecordWriter body(kStoreFormat);
  std::vector<Write> writes;
  for (const auto& [key, value] : last) {
    auto old = medium_->get(key);
    if (!old) {
      failed_ = !internal;
      return old.error();
    }
    if (*old) {
      const Hash gone = entry_hash(key, **old);
      digest.high -= gone.high;
      digest.low -= gone.low;
    }
    if (*value) {
      const Hash added = entry_hash(key, **value);
      digest.high += added.high;
      digest.low += added.low;
    }
    body.bytes(key).boolean(value->has_value()).bytes(*value ? **value : std::string());
    writes.push_back({std::string(key), *value});
  }
  link.batch = hash_of(body.take());
  link.digest = digest;
  const std::uint64_t number = number_ + 1;
  writes.push_back({chain_key(number), link.encode()});
  if (number > kLinksKept) writes.push_back({chain_key(number - kLinksKept), std::nullopt});

  failed_ = true;  // an error below leaves the outcome unknown
  if (auto done = medium_->write(writes); !done) return done;
  number_ = number;
  chain_ = chain_of(number, link);
  digest_ = digest;
  if (auto done = write_mark(); !done) return done;
  failed_ = false;
  return {};
}

Result<void> Store::scan(std::string_view prefix, const Visit& visit) {
  return medium_->scan(prefix, [&](std::string_view key, std::string_view value) {
    if (!is_internal(key)) visit(key, value);
  });
}

Result<std::optional<std::string>> Store::get(std::string_view key) {
  return medium_->get(key);
}

}  // namespace troupe::control
