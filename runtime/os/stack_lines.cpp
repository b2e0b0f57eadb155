#include "troupe/runtime/os/stack_lines.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/plug_in.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/internal/stack_door.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/os/stack_role.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
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
constexpr std::size_t kMaxPiece = 4096;      ///< of one write, since a packet is read as a whole

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
    const ssize_t put =
        write(report.fd, line.data() + done, std::min(line.size() - done, kMaxPiece));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) _exit(1);
    done += static_cast<std::size_t>(put);
  }
}

/// Returns whether the path is that of a file. Another kind of file may act when it is opened.
bool is_file(const std::string& path) {
  struct stat about{};
  return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode);
}

/// Makes this process, the child, end by itself if its parent dies or forgets it.
void bound_child(Duration limit) {
  signal(SIGALRM, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  for (const int fault : kCrashSignals) signal(fault, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  alarm(static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(limit).count()) + 1);
  unsetenv("DEBUGINFOD_URLS");
}

/// The child: looks all batches up and ends.
[[noreturn]] void look_up_in_child(const std::vector<Batch>& batches, int fd) {
  const auto found = find_in_plug_in(internal::kStackPlugin, internal::kStackDoor);
  if (!found) _exit(1);
  const auto door = reinterpret_cast<internal::StackDoor (*)()>(*found)();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Report report{fd, i};
    const Batch& batch = batches[i];
    if (!is_file(batch.path)) continue;
    door(batch.path.c_str(), batch.build_id.c_str(), batch.addresses.data(), batch.addresses.size(),
         write_place, &report);
  }
  _exit(0);
}

/// Reads the child's answer until it ends or the time is over.
std::string read_answer(int fd, Time until) {
  std::string answer;
  char piece[kMaxPiece];
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

/// Returns the batches as the first packet of a child: "MODULE BUILD_ID PATH" or an address a line.
std::string request_of(const std::vector<Batch>& batches) {
  std::string text;
  for (const Batch& batch : batches) {
    std::string lines = "\t" + cut(batch.build_id.c_str()) + "\t" + cut(batch.path.c_str()) + "\n";
    for (const std::uint64_t address : batch.addresses) lines += std::to_string(address) + "\n";
    if (text.size() + lines.size() > kMaxPacket) break;
    text += lines;
  }
  return text;
}

std::vector<Batch> batches_in(std::string_view text) {
  std::vector<Batch> batches;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with('\t')) {
      line.remove_prefix(1);
      Batch& batch = batches.emplace_back();
      batch.build_id = take_word(line);
      batch.path = take_word(line);
    } else if (!batches.empty()) {
      batches.back().addresses.push_back(number_in(line, 0));
    }
  }
  return batches;
}

/// Starts the child. Returns its pid, and the descriptor of its answer; -1: it cannot be had.
pid_t fork_child(const std::vector<Batch>& batches, Duration limit, Fd& answer) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  answer = make_fd(ends[0]);
  const Fd writes = make_fd(ends[1]);
  const pid_t child = answer && writes ? fork() : -1;
  if (child != 0) return child;
  bound_child(limit);
  look_up_in_child(batches, writes.get());
}

pid_t spawn_child(const std::vector<Batch>& batches, Duration limit, Fd& answer) {
  auto ends = LocalSocket::pair();
  if (!ends) return -1;
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(limit).count();
  const auto child = spawn(Role::stack, std::move(ends->second), std::to_string(seconds));
  if (!child) return -1;
  answer = std::move(ends->first);
  const std::string request = request_of(batches);
  (void)send(answer.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return *child;
}

}  // namespace

void run_stack(Fd socket, const std::string& text) {
  bound_child(std::chrono::seconds(std::min<std::size_t>(number_in(text, 1), 60)));
  std::string request(kMaxPacket, '\0');
  ssize_t got = 0;
  do {
    got = read(socket.get(), request.data(), request.size());
  } while (got < 0 && errno == EINTR);
  request.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  const auto newline = std::min(request.find('\n'), request.size());
  if (const std::size_t process = number_in(std::string_view(request).substr(0, newline), 0);
      process != 0)
    show_stacks(static_cast<pid_t>(process), socket.get());
  look_up_in_child(batches_in(request), socket.get());
}

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
  if (!batches.empty()) {
    Fd reads;
    const pid_t child =
        by_ == By::fork ? fork_child(batches, limit, reads) : spawn_child(batches, limit, reads);
    const std::string answer = child > 0 ? read_answer(reads.get(), until) : std::string();
    if (child > 0) {
      send_signal(child, SIGKILL);
      reap_at_end(child);
    }
    if (places_.size() + missing.size() > kMaxKept) places_.clear();
    if (child > 0)
      for (const Key& key : missing) places_[key];  // is not looked up again
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
