#include "troupe/runtime/os/stack_lines.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/plug_in.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/internal/stack_door.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

namespace troupe::os {
namespace {

constexpr std::size_t kMaxAnswer = 1 << 20;  ///< bytes from the child
constexpr std::size_t kMaxText = 4096;       ///< of a function or a file

/// The addresses of one module.
struct Batch {
  std::string path, build_id;
  std::vector<std::uint64_t> addresses;
};

std::string cut(const char* text) {
  std::string line(text == nullptr ? "" : text);
  line.resize(std::min(line.size(), kMaxText));
  for (char& c : line)
    if (c == '\n' || c == '\t') c = ' ';
  return line;
}

struct Report {
  int fd;
  std::size_t batch;
};

/// Writes one line: BATCH INDEX LINE, then function and file, with tabs in between.
void write_place(void* to, std::size_t index, const internal::StackPlace& place) {
  const auto& report = *static_cast<const Report*>(to);
  const std::string line = std::to_string(report.batch) + "\t" + std::to_string(index) + "\t" +
                           std::to_string(place.line) + "\t" + cut(place.function) + "\t" +
                           cut(place.file) + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t put = write(report.fd, line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) _exit(1);
    done += static_cast<std::size_t>(put);
  }
}

/// The child: looks all batches up and ends.
[[noreturn]] void look_up_in_child(const std::vector<Batch>& batches, int fd, Duration limit) {
  signal(SIGALRM, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  for (const int fault : kCrashSignals) signal(fault, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // It ends by itself, too, if its parent dies.
  alarm(static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(limit).count()) + 1);
  unsetenv("DEBUGINFOD_URLS");
  const auto found = find_in_plug_in(internal::kStackPlugin, internal::kStackDoor);
  if (!found) _exit(1);
  const auto door = reinterpret_cast<internal::StackDoor (*)()>(*found)();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Report report{fd, i};
    const Batch& batch = batches[i];
    door(batch.path.c_str(), batch.build_id.c_str(), batch.addresses.data(), batch.addresses.size(),
         write_place, &report);
  }
  _exit(0);
}

/// Reads the child's answer until it ends or the time is over.
std::string read_answer(int fd, Time until) {
  std::string answer;
  char piece[4096];
  while (answer.size() < kMaxAnswer) {
    const Duration left = until - steady_now();
    if (left <= Duration::zero()) break;
    pollfd waits{fd, POLLIN, 0};
    const int ready = wait_for({&waits, 1}, left);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    const ssize_t got = read(fd, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    answer.append(piece, static_cast<std::size_t>(got));
  }
  return answer;
}

std::string_view take_word(std::string_view& text) {
  const auto tab = std::min(text.find('\t'), text.size());
  const std::string_view word = text.substr(0, tab);
  text.remove_prefix(std::min(tab + 1, text.size()));
  return word;
}

std::size_t number_in(std::string_view text, std::size_t otherwise) {
  std::size_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size() ? value : otherwise;
}

std::vector<Batch> batches_of(const std::set<std::pair<std::string, std::uint64_t>>& keys,
                              std::span<const CrashFrame> frames) {
  std::vector<Batch> batches;
  for (const auto& [build_id, address] : keys) {
    if (batches.empty() || batches.back().build_id != build_id) {
      const auto frame =
          std::find_if(frames.begin(), frames.end(),
                       [&, id = &build_id](const auto& f) { return f.build_id == *id; });
      batches.push_back({frame->module, build_id, {}});
    }
    batches.back().addresses.push_back(address);
  }
  return batches;
}

}  // namespace

std::vector<StackLine> StackLines::look_up(std::span<const CrashFrame> frames, Duration limit) {
  const Time until = steady_now() + limit;
  // The address behind a call may be of the next line, or of the next function.
  const auto key_of = [&](std::size_t i) {
    const std::uint64_t offset = frames[i].offset;
    return Key(frames[i].build_id, i > 0 && offset > 0 ? offset - 1 : offset);
  };
  std::set<Key> missing;
  for (std::size_t i = 0; i < frames.size(); ++i)
    if (!frames[i].build_id.empty() && places_.count(key_of(i)) == 0) missing.insert(key_of(i));
  const std::vector<Batch> batches = batches_of(missing, frames);
  int ends[2];
  if (!batches.empty() && pipe2(ends, O_CLOEXEC) == 0) {
    Fd reads = make_fd(ends[0]), writes = make_fd(ends[1]);
    const pid_t child = reads && writes ? fork() : -1;
    if (child == 0) look_up_in_child(batches, writes.get(), limit);
    writes.reset();
    const std::string answer = child > 0 ? read_answer(reads.get(), until) : std::string();
    if (child > 0) {
      send_signal(child, SIGKILL);
      reap_at_end(child);
    }
    if (places_.size() + missing.size() > kMaxKept) places_.clear();
    for (std::string_view rest = answer; !rest.empty();) {
      const auto end = rest.find('\n');
      if (end == std::string_view::npos) break;
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end + 1);
      const std::size_t batch = number_in(take_word(line), batches.size());
      const std::size_t index = number_in(take_word(line), SIZE_MAX);
      Place place;
      place.line = static_cast<int>(number_in(take_word(line), 0));
      place.function = take_word(line);
      if (place.function.starts_with("_Z")) place.function = readable_type(place.function.c_str());
      place.file = take_word(line);
      if (batch >= batches.size() || index >= batches[batch].addresses.size()) continue;
      places_[{batches[batch].build_id, batches[batch].addresses[index]}] = std::move(place);
    }
  }
  std::vector<StackLine> lines;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    StackLine& line = lines.emplace_back();
    line.frame = frames[i];
    const auto place = places_.find(key_of(i));
    if (frames[i].build_id.empty() || place == places_.end()) continue;
    line.function = place->second.function;
    line.file = place->second.file;
    line.line = place->second.line;
  }
  return lines;
}

std::string text_of(const StackLine& line) {
  constexpr std::size_t kShown = 200;
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%llx",
                static_cast<unsigned long long>(line.frame.offset));
  const std::string module = line.frame.module.substr(line.frame.module.rfind('/') + 1);
  std::string place = (module.empty() ? "?" : visible_text(module, kShown)) + offset;
  if (line.function.empty() && line.file.empty()) return place;
  std::string text = line.function.empty() ? "?" : visible_text(line.function, kShown);
  if (!line.file.empty())
    text += " at " + visible_text(line.file.substr(line.file.rfind('/') + 1), kShown) + ":" +
            std::to_string(line.line);
  return text + " (" + place + ")";
}

}  // namespace troupe::os
