// The reader of crash records. Everything in a record may be forged or torn.
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/os/crash_record.hpp"
#include "troupe/runtime/os/internal/crash_layout.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe::os {
namespace {

using internal::CrashHead;
using internal::CrashStage;

constexpr std::size_t kMaxModules = 512;
constexpr std::size_t kMaxHeaders = 64;       ///< program headers of a module
constexpr std::size_t kMaxNotes = 64 * 1024;  ///< bytes
constexpr std::size_t kMaxBuildId = 64;

/// Reads up to `size` bytes; returns how many.
std::size_t read_at(int fd, void* to, std::size_t size, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got =
        pread(fd, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

/// An executable line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0, inode = 0;
  std::string path;
};

template <class T>
bool take_number(std::string_view& text, T& value, int base, char end) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (parsed.ec != std::errc{} || parsed.ptr == text.data() + text.size() || *parsed.ptr != end)
    return false;
  text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()) + 1);
  return true;
}

/// Reads "55d0-55d8 r-xp 00001000 08:01 1234   /path".
std::optional<Mapping> mapping_in(std::string_view line) {
  Mapping mapping;
  unsigned major = 0, minor = 0;
  if (!take_number(line, mapping.begin, 16, '-') || !take_number(line, mapping.end, 16, ' '))
    return std::nullopt;
  if (line.size() < 5 || line[4] != ' ') return std::nullopt;
  line.remove_prefix(5);
  if (!take_number(line, mapping.offset, 16, ' ') || !take_number(line, major, 16, ':') ||
      !take_number(line, minor, 16, ' ') || !take_number(line, mapping.inode, 10, ' '))
    return std::nullopt;
  const auto path = line.find_first_not_of(' ');
  if (path != std::string_view::npos) mapping.path = line.substr(path);
  if (mapping.begin >= mapping.end) return std::nullopt;
  return mapping;
}

std::vector<Mapping> mappings_in(std::string_view text) {
  std::vector<Mapping> mappings;
  while (!text.empty() && mappings.size() < kMaxModules) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) break;
    if (auto mapping = mapping_in(text.substr(0, end))) mappings.push_back(std::move(*mapping));
    text.remove_prefix(end + 1);
  }
  return mappings;
}

/// What a module's file says about itself.
struct Module {
  std::string build_id;
  std::vector<Elf64_Phdr> segments;
};

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

/// Opens the file that the process had mapped. Another file of that name gives nothing.
Module module_of(const Mapping& mapping) {
  Module module;
  if (mapping.path.empty() || mapping.path[0] != '/') return module;
  const Fd fd = make_fd(open(mapping.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat file{};
  if (!fd || fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode) || file.st_ino != mapping.inode)
    return module;
  Elf64_Ehdr head;
  if (read_at(fd.get(), &head, sizeof head, 0) != sizeof head ||
      std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
      head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phnum > kMaxHeaders)
    return module;
  module.segments.resize(head.e_phnum);
  const std::size_t bytes = module.segments.size() * sizeof(Elf64_Phdr);
  if (read_at(fd.get(), module.segments.data(), bytes, head.e_phoff) != bytes) return {};
  for (const Elf64_Phdr& segment : module.segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNotes) continue;
    std::vector<char> notes(segment.p_filesz);
    const std::size_t got = read_at(fd.get(), notes.data(), notes.size(), segment.p_offset);
    if (auto id = build_id_in(notes.data(), got); !id.empty()) {
      module.build_id = std::move(id);
      break;
    }
  }
  return module;
}

class Frames {
 public:
  explicit Frames(std::string_view maps) : mappings_(mappings_in(maps)) {}

  /// `is_return`: the address behind a call. The call itself may be the last of its function.
  CrashFrame frame_of(std::uint64_t address, bool is_return) {
    CrashFrame frame;
    frame.offset = address;
    const std::uint64_t inside = is_return && address > 0 ? address - 1 : address;
    const auto at = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
      return inside >= mapping.begin && inside < mapping.end;
    });
    if (at == mappings_.end()) return frame;
    auto known = modules_.find(at->path);
    if (known == modules_.end()) known = modules_.emplace(at->path, module_of(*at)).first;
    const Module& module = known->second;
    frame.module = at->path;
    frame.build_id = module.build_id;
    const std::uint64_t in_file = address - at->begin + at->offset;
    frame.offset = in_file;
    for (const Elf64_Phdr& segment : module.segments)
      if (segment.p_type == PT_LOAD && in_file >= segment.p_offset &&
          in_file - segment.p_offset < segment.p_filesz)
        frame.offset = in_file - segment.p_offset + segment.p_vaddr;
    return frame;
  }

 private:
  const std::vector<Mapping> mappings_;
  std::map<std::string, Module> modules_;
};

const char* signal_name(int signal) noexcept {
  switch (signal) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGABRT: return "SIGABRT";
    default: return "an unknown signal";
  }
}

std::string hex_text(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

/// Reads the first `got` bytes, which nobody changes.
Result<CrashReport> report_in(const std::vector<char>& bytes, std::size_t got) {
  const auto damaged = [](const std::string& why) {
    return Error(Code::invalid_argument, "the crash record is damaged: " + why);
  };
  CrashHead head;
  if (got < sizeof head) return damaged("it has " + std::to_string(got) + " bytes");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic == 0 && head.stage == 0)
    return Error(Code::unavailable, "the process has left no crash record");
  if (head.magic != internal::kCrashMagic) return damaged("it does not begin as one");
  if (head.stage > static_cast<std::uint32_t>(CrashStage::whole)) return damaged("its stage");
  if (head.frames > kMaxCrashFrames) return damaged("it claims too many frames");
  if (head.map_bytes > got - sizeof head) return damaged("it claims too many modules");
  if (std::find(kCrashSignals.begin(), kCrashSignals.end(), head.signal) == kCrashSignals.end())
    return damaged("its signal is " + std::to_string(head.signal));
  CrashReport report;
  report.signal = head.signal;
  report.sent = head.sent != 0;
  report.address = head.address;
  report.pid = head.pid;
  report.thread_id = head.thread;
  report.thread.assign(head.name, strnlen(head.name, sizeof head.name));
  report.whole = head.stage == static_cast<std::uint32_t>(CrashStage::whole);
  Frames frames(std::string_view(bytes.data() + sizeof head, head.map_bytes));
  for (std::uint32_t i = 0; i < head.frames; ++i)
    report.frames.push_back(frames.frame_of(head.at[i], i > 0));
  return report;
}

}  // namespace

Result<CrashReport> read_crash(int fd, std::uint64_t offset) {
  std::vector<char> bytes(kCrashBytes);
  const std::size_t got = read_at(fd, bytes.data(), bytes.size(), offset);
  return report_in(bytes, got);
}

Result<CrashReport> read_crash(std::span<const std::byte> area) {
  TROUPE_ASSERT(area.size() >= kCrashBytes, "a crash record has its whole area");
  // Most processes leave no record. A look at the head takes no memory for the rest.
  CrashHead head;
  std::memcpy(&head, area.data(), sizeof head);
  std::vector<char> bytes(kCrashBytes);
  const bool is_empty = head.magic == 0 && head.stage == 0;
  std::memcpy(bytes.data(), area.data(), is_empty ? sizeof head : kCrashBytes);
  return report_in(bytes, bytes.size());
}

std::string text_of(const CrashReport& report) {
  constexpr std::size_t kShown = 200;
  std::string text = "killed by " + std::string(signal_name(report.signal));
  if (report.sent && report.address != static_cast<std::uint64_t>(report.pid))  // by another one
    text += ", sent by process " + std::to_string(report.address) + ",";
  else if (!report.sent && (report.signal == SIGSEGV || report.signal == SIGBUS))
    text += " at address " + hex_text(report.address);
  text += " in thread '" + visible_text(report.thread, kShown) + "' (" +
          std::to_string(report.thread_id) + ")";
  for (std::size_t i = 0; i < report.frames.size(); ++i) {
    const CrashFrame& frame = report.frames[i];
    const std::string name = frame.module.substr(frame.module.rfind('/') + 1);
    text += "\n    #" + std::to_string(i) + " " +
            (name.empty() ? hex_text(frame.offset)
                          : visible_text(name, kShown) + "+" + hex_text(frame.offset));
  }
  if (!report.whole) text += "\n    (the stack could not be read to its end)";
  return text;
}

}  // namespace troupe::os
