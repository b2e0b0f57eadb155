// The reader of crash records. Everything in a record may be forged or torn.
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/os/crash_record.hpp"
#include "troupe/runtime/os/internal/crash_layout.hpp"
#include "troupe/runtime/os/internal/read_at.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe::os {
namespace {

using internal::CrashHead;
using internal::CrashStage;

constexpr std::size_t kMaxModules = 512;

/// An executable line of /proc/PID/maps.
struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  MappedFile file;
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
      !take_number(line, minor, 16, ' ') || !take_number(line, mapping.file.inode, 10, ' '))
    return std::nullopt;
  const auto path = line.find_first_not_of(' ');
  if (path != std::string_view::npos) mapping.file.path = line.substr(path);
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

/// The modules of a process, and what their files say.
class Frames {
 public:
  Frames(std::string_view maps, std::span<const std::uint64_t> addresses,
         const ModuleSource& modules)
      : mappings_(mappings_in(maps)) {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      const Mapping* const mapping = mapping_of(addresses[i], i > 0);
      if (mapping == nullptr || mapping->file.path.empty()) continue;
      if (std::find(files_.begin(), files_.end(), mapping->file) == files_.end())
        files_.push_back(mapping->file);
    }
    if (!files_.empty()) modules_ = modules(files_);
    modules_.resize(files_.size());
  }

  /// `is_return`: the address behind a call. The call itself may be the last of its function.
  CrashFrame frame_of(std::uint64_t address, bool is_return) const {
    CrashFrame frame;
    frame.offset = address;
    const Mapping* const mapping = mapping_of(address, is_return);
    if (mapping == nullptr) return frame;
    frame.module = mapping->file.path;
    const std::uint64_t in_file = address - mapping->begin + mapping->offset;
    frame.offset = in_file;
    const auto at = std::find(files_.begin(), files_.end(), mapping->file);
    if (at == files_.end()) return frame;
    const ModuleFile& module = modules_[static_cast<std::size_t>(at - files_.begin())];
    frame.build_id = module.build_id;
    for (const ModuleFile::Segment& segment : module.segments)
      if (in_file >= segment.offset && in_file - segment.offset < segment.bytes)
        frame.offset = in_file - segment.offset + segment.address;
    return frame;
  }

 private:
  const Mapping* mapping_of(std::uint64_t address, bool is_return) const {
    const std::uint64_t inside = is_return && address > 0 ? address - 1 : address;
    const auto at = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
      return inside >= mapping.begin && inside < mapping.end;
    });
    return at == mappings_.end() ? nullptr : &*at;
  }

  const std::vector<Mapping> mappings_;
  std::vector<MappedFile> files_;    // of the frames, each once
  std::vector<ModuleFile> modules_;  // one for each of them
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
Result<CrashReport> report_in(const std::vector<char>& bytes, std::size_t got,
                              const ModuleSource& modules) {
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
  const Frames frames(std::string_view(bytes.data() + sizeof head, head.map_bytes),
                      std::span(head.at).first(head.frames), modules);
  for (std::uint32_t i = 0; i < head.frames; ++i)
    report.frames.push_back(frames.frame_of(head.at[i], i > 0));
  return report;
}

}  // namespace

Result<CrashReport> read_crash(int fd, std::uint64_t offset) {
  std::vector<char> bytes(kCrashBytes);
  const std::size_t got = internal::read_at(fd, bytes.data(), bytes.size(), offset);
  return report_in(bytes, got, read_modules);
}

Result<CrashReport> read_crash(std::span<const std::byte> area, const ModuleSource& modules) {
  TROUPE_ASSERT(area.size() >= kCrashBytes, "a crash record has its whole area");
  // Most processes leave no record. A look at the head takes no memory for the rest.
  CrashHead head;
  std::memcpy(&head, area.data(), sizeof head);
  std::vector<char> bytes(kCrashBytes);
  const bool is_empty = head.magic == 0 && head.stage == 0;
  std::memcpy(bytes.data(), area.data(), is_empty ? sizeof head : kCrashBytes);
  return report_in(bytes, bytes.size(), modules);
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
