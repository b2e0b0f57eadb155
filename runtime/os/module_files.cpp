#include "troupe/runtime/os/module_files.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/leave_behind.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/os/internal/read_at.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace troupe::os {
namespace {

constexpr std::size_t kMaxHeaders = 64;       ///< program headers of a module
constexpr std::size_t kMaxNotes = 64 * 1024;  ///< bytes
constexpr std::size_t kMaxBuildId = 64;

std::string build_id_in(const char* notes, std::size_t size) {
  constexpr std::string_view kGnu("GNU\0", 4);
  const auto aligned = [](std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; };
  for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes + at, sizeof note);
    const std::size_t name = at + sizeof note;
    const std::size_t value = name + aligned(note.n_namesz);
    const std::size_t end = value + aligned(note.n_descsz);
    if (note.n_namesz > size || note.n_descsz > size || value + note.n_descsz > size) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz <= kMaxBuildId &&
        std::string_view(notes + name, note.n_namesz) == kGnu) {
      std::string id;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(notes[value + i]));
        id += digits;
      }
      return id;
    }
    at = end;
  }
  return {};
}

}  // namespace

ModuleFile read_module(const MappedFile& wanted) {
  ModuleFile module;
  if (wanted.path.empty() || wanted.path[0] != '/') return module;
  const Fd fd = make_fd(open(wanted.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat file{};
  if (!fd || fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_ino != wanted.inode)
    return module;
  Elf64_Ehdr head;
  if (internal::read_at(fd.get(), &head, sizeof head, 0) != sizeof head ||
      std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phnum > kMaxHeaders)
    return module;
  std::vector<Elf64_Phdr> parts(head.e_phnum);
  const std::size_t bytes = parts.size() * sizeof(Elf64_Phdr);
  if (internal::read_at(fd.get(), parts.data(), bytes, head.e_phoff) != bytes) return module;
  for (const Elf64_Phdr& part : parts)
    if (part.p_type == PT_LOAD)
      module.segments.push_back({part.p_offset, part.p_filesz, part.p_vaddr});
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_NOTE || part.p_filesz > kMaxNotes) continue;
    std::vector<char> notes(part.p_filesz);
    const std::size_t got = internal::read_at(fd.get(), notes.data(), notes.size(), part.p_offset);
    module.build_id = build_id_in(notes.data(), got);
    if (!module.build_id.empty()) break;
  }
  return module;
}

std::vector<ModuleFile> read_modules(std::span<const MappedFile> files) {
  std::vector<ModuleFile> modules;
  for (const MappedFile& file : files) modules.push_back(read_module(file));
  return modules;
}

/// What the thread and the caller share. It outlives the ModuleReader while the thread hangs.
struct ModuleReader::Shared {
  std::function<ModuleFile(const MappedFile&)> read;
  std::mutex mutex;
  std::condition_variable changed, idle;
  // Under the mutex:
  std::deque<MappedFile> orders;  ///< the first one is being read
  std::map<MappedFile, ModuleFile> known;
  bool over = false, ended = false;
  bool late = false;  ///< the first order has taken too long
  // By the constructing and the destroying thread:
  std::unique_ptr<SignalMaskedThread> thread;
};

ModuleReader::ModuleReader(std::function<ModuleFile(const MappedFile&)> read, Duration patience)
    : patience_(patience), shared_(std::make_shared<Shared>()) {
  shared_->read = std::move(read);
}

ModuleReader::~ModuleReader() {
  if (shared_->thread == nullptr) return;
  std::unique_lock lock(shared_->mutex);
  shared_->over = true;
  shared_->changed.notify_one();
  if (shared_->idle.wait_for(lock, patience_, [this] { return shared_->ended; })) {
    lock.unlock();
    shared_->thread->join();
    return;
  }
  leave_behind(shared_);  // the disk hangs
}

/// Starts the thread at the first crash: most nodes see none. Returns whether there is one.
bool ModuleReader::start() {
  if (shared_->thread != nullptr) return true;
  try {
    shared_->thread = std::make_unique<SignalMaskedThread>(
        "troupe-modules", [shared = shared_.get()] { run(*shared); });
  } catch (const Error&) {
    return false;
  }
  return true;
}

void ModuleReader::run(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return shared.over || !shared.orders.empty(); });
    if (shared.over) break;
    const MappedFile file = shared.orders.front();
    lock.unlock();
    ModuleFile module = shared.read(file);
    lock.lock();
    if (shared.known.size() >= kMostKept) shared.known.clear();
    shared.known[file] = std::move(module);
    shared.orders.pop_front();
    shared.late = false;
    shared.idle.notify_all();
  }
  shared.ended = true;
  shared.idle.notify_all();
}

std::vector<ModuleFile> ModuleReader::look_up(std::span<const MappedFile> files) {
  std::vector<ModuleFile> modules(files.size());
  if (!start()) return modules;
  std::unique_lock lock(shared_->mutex);
  const auto is_known = [this](const MappedFile& file) { return shared_->known.count(file) != 0; };
  for (const MappedFile& file : files)
    if (!is_known(file) && shared_->orders.size() < kMostKept &&
        std::find(shared_->orders.begin(), shared_->orders.end(), file) == shared_->orders.end())
      shared_->orders.push_back(file);
  shared_->changed.notify_one();
  const auto are_known = [&] { return std::all_of(files.begin(), files.end(), is_known); };
  if (!shared_->late && !shared_->idle.wait_for(lock, patience_, are_known)) shared_->late = true;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (const auto at = shared_->known.find(files[i]); at != shared_->known.end()) {
      modules[i] = at->second;
      if (at->second.build_id.empty()) shared_->known.erase(at);  // it may be there next time
    }
  return modules;
}

ModuleSource ModuleReader::source() {
  return [this](std::span<const MappedFile> files) { return look_up(files); };
}

}  // namespace troupe::os
