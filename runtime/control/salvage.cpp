#include "troupe/runtime/control/salvage.hpp"

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/control/folder.hpp"
#include "troupe/runtime/control/rocks_store.hpp"
#include "troupe/runtime/storage/database.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

namespace troupe::control {
namespace {

namespace fs = std::filesystem;

constexpr std::uint8_t kEpochFormat = 1;
constexpr const char* kNodeEpoch = "epoch/node";
constexpr const char* kStoreEpoch = "meta/epoch";
/// Added to the last epochs found. The old control may have given some whose records are lost.
constexpr Epoch kEpochsAhead = 1024;
constexpr std::size_t kBatchBytes = 4 << 20;

struct Kind {
  const char* prefix;
  const char* name;
  bool kept;
};
constexpr Kind kKinds[] = {{"actor/", "actors", true},
                           {"buried/", "", true},
                           {"dead/", "", true},
                           {"epoch/", "", true},
                           {"job/", "jobs", true},
                           {"joined/", "joined nodes", false},
                           {"killed/", "", true},
                           {"kv/", "values", true},
                           {"meta/", "", false},
                           {"name/", "names", true},
                           {"object/", "names of objects", true},
                           {"node/", "nodes", false},
                           {"spent/", "tokens", true},
                           {"voters/", "", false},
                           {"chain/", "", false}};

using Records = std::map<std::string, std::string>;

Error io_error(const std::string& what, const std::error_code& code) {
  return Error(code == std::errc::no_space_on_device ? Code::no_space : Code::unavailable,
               what + ": " + code.message());
}

std::optional<Store::Marked> peek_mark(const std::string& path, int index) {
  std::ifstream file(path, std::ios::binary);
  Slot slot;
  file.seekg(static_cast<std::streamoff>(kSlotSize) * index);
  file.read(reinterpret_cast<char*>(slot.data()), static_cast<std::streamsize>(slot.size()));
  return file ? Store::read_mark(slot) : std::nullopt;
}

void note(std::vector<std::string>& notes, std::string what) {
  if (std::find(notes.begin(), notes.end(), what) == notes.end()) notes.push_back(std::move(what));
}

/// A folder for copies. The destructor removes it.
class Workshop {
 public:
  static Result<Workshop> make(const std::string& beside) {
    std::error_code error;
    fs::path parent =
        beside.empty() ? fs::temp_directory_path(error) : fs::absolute(beside, error).parent_path();
    std::string path = (parent / "troupe-salvage-XXXXXX").string();
    if (error || ::mkdtemp(path.data()) == nullptr)
      return io_error("cannot make a folder for copies in " + parent.string(),
                      error ? error : std::error_code(errno, std::generic_category()));
    Workshop shop;
    shop.path_ = std::move(path);
    return shop;
  }
  Workshop(Workshop&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  Workshop& operator=(Workshop&&) = delete;
  ~Workshop() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  /// Copies the store into this folder under `name` and returns the copy's path. Files that cannot
  /// be read are left out and named in `notes`.
  Result<std::string> copy(const std::string& folder, const std::string& name,
                           std::vector<std::string>& notes) const {
    const std::string to = path(name);
    std::error_code error;
    fs::create_directories(to + "/db", error);
    if (!error) fs::permissions(to, fs::perms::owner_all, error);
    if (error) return io_error("cannot make " + to, error);
    std::vector<std::string> files;
    for (fs::directory_iterator at(folder + "/db", error), end; !error && at != end;
         at.increment(error))
      files.push_back("db/" + at->path().filename().string());
    if (error) return io_error("cannot read " + folder + "/db", error);
    if (fs::exists(folder + "/mark", error)) files.emplace_back("mark");
    for (const std::string& file : files) {
      const fs::path from = fs::path(folder) / file, copy = fs::path(to) / file;
      fs::copy(from, copy, fs::copy_options::recursive, error);
      if (error == std::errc::no_space_on_device)
        return io_error("cannot copy " + from.string(), error);
      if (!error) continue;
      note(notes, from.string() + " cannot be read: " + error.message());
      fs::remove_all(copy, error);
    }
    std::ofstream(to + "/lock").flush();  // without it, the copy is no store's folder
    return to;
  }

 private:
  Workshop() = default;
  std::string path_;
};

/// Locks the store against a control that would write it meanwhile.
Result<Fd> lock(const std::string& folder) {
  const std::string path = folder + "/lock";
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file && errno == ENOENT) return file;  // no control can hold a lock that does not exist
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
  const int why = errno;
  if (file && why == EWOULDBLOCK)
    return Error(Code::unavailable,
                 "a control runs on " + folder + ": stop it first (`troupe stop`)");
  return io_error("cannot lock " + path, std::error_code(why, std::generic_category()));
}

/// Reads one kind of records after the other, so that a bad record hides only later ones of its
/// kind. Returns why the database does not open, or an empty text.
std::string read_all(const storage::Door& door, const std::string& path, Records& found,
                     std::vector<std::string>& notes) {
  std::unique_ptr<storage::Database> db;
  if (const auto status = door.open_leniently(path, db); !status.ok()) return status.text;
  for (const Kind& kind : kKinds) {
    const auto status = db->scan(kind.prefix, [&](std::string_view key, std::string_view value) {
      found.emplace(key, value);
    });
    if (!status.ok()) note(notes, "not all of " + std::string(kind.prefix) + ": " + status.text);
  }
  return {};
}

/// Returns the records that a lenient reader finds. If it does not find all, the records that a
/// repair of another copy leaves are added.
Result<Records> read_leftovers(const Workshop& shop, const std::string& folder, Salvage& seen) {
  const auto door = storage::door();
  if (!door) return door.error();
  Records found;
  auto copy = shop.copy(folder, "lenient", seen.notes);
  if (!copy) return copy.error();
  const std::string first = read_all(**door, *copy + "/db", found, seen.notes);
  if (first.empty() && seen.notes.empty()) return found;
  note(seen.notes, first.empty()
                       ? "the database opens, but not all of it can be read; what is missing was "
                         "looked for in a repaired copy"
                       : "the database does not open (" + first + "); it was repaired in a copy");
  copy = shop.copy(folder, "repaired", seen.notes);
  if (!copy) return copy.error();
  const auto repaired = (*door)->repair(*copy + "/db");
  const std::string second =
      repaired.ok() ? read_all(**door, *copy + "/db", found, seen.notes) : repaired.text;
  if (!first.empty() && !second.empty())
    return Error(Code::invalid_argument,
                 "nothing of " + folder + " can be read: " + second + "; only a backup helps");
  if (!second.empty()) note(seen.notes, "nor can it be repaired: " + second);
  return found;
}

void count(const Records& records, Salvage& seen) {
  for (const auto& [key, value] : records)
    for (const Kind& kind : kKinds)
      if (key.rfind(kind.prefix, 0) == 0) {
        if (std::string_view(kind.prefix) == "chain/" && key.size() == 22)
          seen.last_commit = std::max<std::uint64_t>(seen.last_commit,
                                                     std::stoull("0" + key.substr(6), nullptr, 16));
        if (*kind.name == '\0' || !kind.kept) continue;
        ++seen.records[kind.name];
        seen.bytes += key.size() + value.size();
      }
}

Epoch epoch_in(const Records& records, const char* key) {
  const auto at = records.find(key);
  if (at == records.end()) return 0;
  RecordReader in{std::string_view(at->second)};
  const Epoch epoch = in.u64();
  return in.ok() ? epoch : 0;
}

/// Returns the highest node epoch in the records.
Epoch last_node_epoch(const Records& records) {
  Epoch last = epoch_in(records, kNodeEpoch);
  for (const std::string prefix : {"buried/", "node/"})
    for (auto at = records.lower_bound(prefix);
         at != records.end() && at->first.rfind(prefix, 0) == 0; ++at) {
      RecordReader in{std::string_view(at->second)};
      in.id<NodeId>();
      in.id<SessionId>();
      const Epoch epoch = in.u64();
      if (in.ok()) last = std::max(last, epoch);
    }
  return last;
}

/// Moves the finished store from `draft` to `to`, so that `to` is complete or does not exist.
Result<void> put_in_place(const std::string& draft, const std::string& to) {
  std::error_code error;
  fs::rename(draft, to, error);
  if (error) return io_error("cannot make " + to, error);
  const Fd parent(::open(fs::absolute(to).lexically_normal().parent_path().c_str(),
                         O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent || ::fsync(parent.get()) != 0)
    return io_error("cannot write the folder of " + to,
                    std::error_code(errno, std::generic_category()));
  return {};
}

Result<void> write_new(const std::string& to, const Records& records, Epoch last_epoch) {
  RocksStoreOptions options;
  options.store.first_epoch = std::max(last_epoch, epoch_in(records, kStoreEpoch)) + kEpochsAhead;
  auto store = open_rocks_store(to, options);
  if (!store) return store.error();
  Batch batch;
  std::size_t bytes = 0;
  const auto flush = [&]() -> Result<void> {
    bytes = 0;
    return (*store)->commit({&batch, 1});
  };
  for (const auto& record : records) {
    const std::string& key = record.first;
    const auto& value = record.second;
    const bool kept = std::any_of(std::begin(kKinds), std::end(kKinds), [&key](const Kind& kind) {
      return kind.kept && key.rfind(kind.prefix, 0) == 0;
    });
    if (!kept || key == kNodeEpoch) continue;
    bytes += key.size() + value.size();
    batch.put(key, value);
    if (bytes < kBatchBytes) continue;
    if (auto done = flush(); !done) return done;
    batch = Batch();
  }
  batch.put(kNodeEpoch,
            RecordWriter(kEpochFormat).u64(last_node_epoch(records) + kEpochsAhead).take());
  return flush();
}

}  // namespace

Result<Salvage> salvage_store(const std::string& given, const std::string& to) {
  std::error_code error;
  fs::path path = fs::absolute(given, error).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  if (path.filename() == "db" && !fs::exists(path / "db")) path = path.parent_path();
  const std::string folder = path.string();
  if (!fs::is_directory(folder + "/db", error))
    return Error(Code::invalid_argument, folder + " holds no store of control");
  if (!to.empty() && fs::exists(to, error))
    return Error(Code::invalid_argument, to + " is there already: name a folder that is not");
  const auto locked = lock(folder);
  if (!locked) return locked.error();
  const auto shop = Workshop::make(to);
  if (!shop) return shop.error();

  Salvage seen;
  Epoch last_epoch = 0;
  for (const int slot : {0, 1})
    if (const auto mark = peek_mark(folder + "/mark", slot)) {
      seen.marked_commit = std::max(seen.marked_commit, mark->commits);
      last_epoch = std::max(last_epoch, mark->epoch);
    }
  auto strict = shop->copy(folder, "strict", seen.notes);
  if (!strict) return strict.error();
  if (!seen.notes.empty()) {
    seen.damaged = true;
    seen.why = seen.notes.front();
  } else if (const auto store = open_rocks_store(*strict, {}); !store) {
    if (store.error().code() != Code::invalid_argument) return store.error();
    seen.damaged = true;
    seen.why =
        store.error().message().substr(0, store.error().message().find("; control does not"));
    for (auto at = seen.why.find(*strict); at != std::string::npos; at = seen.why.find(*strict))
      seen.why.replace(at, strict->size(), folder);
  }
  auto records = read_leftovers(*shop, folder, seen);
  if (!records) return records.error();
  count(*records, seen);
  if (to.empty()) return seen;
  const std::string draft = shop->path("new");
  if (auto done = write_new(draft, *records, last_epoch); !done) return done.error();
  if (auto done = put_in_place(draft, to); !done) return done.error();
  return seen;
}

}  // namespace troupe::control
