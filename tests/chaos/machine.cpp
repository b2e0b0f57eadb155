// Faults of the machine: full memory, a full disk, damaged files, and the end of all processes.
#include "tests/chaos/chaos.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace chaos {

using namespace std::chrono_literals;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Returns the number that follows `word` in a file of words and numbers, or 0.
std::uint64_t number_in(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string name, value; file >> name >> value;)
    if (name == word) return std::stoull(value);
  return 0;
}

bool write_to(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

/// A control group with a memory limit, if this user may create one.
class MemoryGroup {
 public:
  explicit MemoryGroup(const std::string& name) {
    std::error_code error;
    for (const char* root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
      const std::string folder = std::string(root) + "/" + name;
      const bool first = std::string(root) == "/sys/fs/cgroup/memory";
      if (!fs::create_directory(folder, error)) continue;
      limit_ = folder + (first ? "/memory.limit_in_bytes" : "/memory.max");
      events_ = folder + (first ? "/memory.oom_control" : "/memory.events");
      if (fs::exists(limit_, error)) {
        folder_ = folder;
        return;
      }
      fs::remove(folder, error);
    }
  }
  ~MemoryGroup() {
    if (!usable()) return;
    write_to(limit_, limit_.find("in_bytes") != std::string::npos ? "-1" : "max");
    std::ifstream procs(folder_ + "/cgroup.procs");
    const std::string out = fs::path(folder_).parent_path().string() + "/cgroup.procs";
    for (std::string pid; procs >> pid;) write_to(out, pid);
    ::rmdir(folder_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  bool usable() const { return !folder_.empty(); }
  bool add(int pid) const { return write_to(folder_ + "/cgroup.procs", std::to_string(pid)); }
  bool limit(std::uint64_t bytes) const { return write_to(limit_, std::to_string(bytes)); }
  std::uint64_t kills() const { return number_in(events_, "oom_kill"); }

 private:
  std::string folder_, limit_, events_;
};

/// Damages one file: changes a byte, truncates, zeroes, exchanges or removes it. Returns what was
/// done.
std::string damage(const fs::path& folder, std::mt19937_64& random) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.file_size() > 0 && entry.path().filename() != "reserve" &&
        entry.path().filename() != "LOG" && entry.path().filename() != "lock")
      files.push_back(entry.path());
  if (files.empty()) return "";
  std::sort(files.begin(), files.end());
  const fs::path& file = files[random() % files.size()];
  const auto size = fs::file_size(file);
  const std::string name = file.lexically_relative(folder).string();
  const auto at = random() % size;
  switch (random() % 5) {
    case 0: {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(static_cast<std::streamoff>(at));
      const int byte = bytes.get();
      bytes.seekp(static_cast<std::streamoff>(at));
      bytes.put(static_cast<char>(byte ^ (1 << (random() % 8))));
      return "a bit of " + name + " at " + std::to_string(at);
    }
    case 1: fs::resize_file(file, at); return name + " cut to " + std::to_string(at) + " bytes";
    case 2: {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(static_cast<std::streamoff>(at));
      const auto count = std::min<std::uint64_t>(512, size - at);
      bytes << std::string(count, '\0');
      return std::to_string(count) + " zeros in " + name + " at " + std::to_string(at);
    }
    case 3: {
      const fs::path& other = files[random() % files.size()];
      if (other == file) return "";
      fs::rename(file, file.string() + ".x");
      fs::rename(other, file);
      fs::rename(file.string() + ".x", other);
      return name + " exchanged with " + other.lexically_relative(folder).string();
    }
    default: fs::remove(file); return name + " removed";
  }
}

std::set<std::string> jobs_of(const std::string& command, const std::string& file,
                              const std::string& log, bool& fine) {
  const json document = json::parse(list(command, "jobs", file, log), nullptr, false);
  fine = document.is_object() && document["unanswered"].empty();
  std::set<std::string> jobs;
  if (fine)
    for (const auto& row : document["rows"]) jobs.insert(row["id"].get<std::string>());
  return jobs;
}

}  // namespace

/// A task takes all memory that its node may use. The kernel must kill the task, and nothing else
/// may suffer.
Chaos::Effect Chaos::memory_hogged() {
  Node* node = victim();
  if (node == nullptr) return std::nullopt;
  node->stays = true;
  const MemoryGroup group("chaos-" + std::to_string(::getpid()));
  if (!group.usable()) {
    rows_["memory_hogged"].skipped = "no cgroup for memory may be made here";
    return std::nullopt;
  }
  std::vector<int> pids{node->agent};
  for (int i = 0; i < 2; ++i)
    for (const Process& process : descendants())
      if (std::count(pids.begin(), pids.end(), process.parent) != 0 &&
          std::count(pids.begin(), pids.end(), process.pid) == 0)
        pids.push_back(process.pid);
  for (const int pid : pids) (void)group.add(pid);
  if (!group.limit(std::uint64_t{600} << 20)) return std::nullopt;
  const auto number = ++marks_;
  driver_->say("hog " + std::to_string(number) + " " + node->id);
  Injected injected;
  const bool told = within(20s, [&] {
    driver_->listen();
    return driver_->hogged.count(number) != 0;
  });
  injected.at = Clock::now();
  const bool killed = group.kills() > 0;
  if (!told) bad("memory_hogged", "hung", "the task that took all memory has not ended");
  if (told && killed && driver_->hogged[number] == "value")
    bad("memory_hogged", "wrong", "the task that took all memory has a value");
  if (!killed) return std::nullopt;
  return injected;
}

/// Fills control's disk for a while. Control refuses records, and everything else must go on.
Chaos::Effect Chaos::disk_filled() {
  if (!on_tmpfs_) {
    rows_["disk_filled"].skipped = "a small disk cannot be mounted by this user";
    return std::nullopt;
  }
  driver_->listen();
  const auto refused = driver_->work().no_space;
  driver_->say("full");
  const std::string path = data_ + "/db/filler";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string piece(1 << 20, 'x');
  while (::write(fd, piece.data(), piece.size()) > 0) {
  }
  while (::write(fd, piece.data(), 4096) > 0) {
  }
  ::close(fd);
  const int control = cluster_->control();
  const bool seen = within(6s, [&] {
    driver_->listen();
    return driver_->work().no_space > refused;
  });
  sleep(1s);
  ::unlink(path.c_str());
  Injected injected;
  if (cluster_->control() != control) bad("disk_filled", "lost", "control ended on a full disk");
  // A record may have been refused just before. It has ended once a later record is kept.
  const auto kept = driver_->work().records;
  within(6s, [&] {
    driver_->listen();
    return driver_->work().records > kept;
  });
  driver_->say("roomy");
  if (!seen) return std::nullopt;
  return injected;
}

/// Ends the cluster, then starts control on damaged copies of its folder. Control must know every
/// job that it had acknowledged, or refuse to start.
Chaos::Effect Chaos::data_damaged() {
  bool fine = false;
  const auto known =
      jobs_of(options_.command, cluster_->nodes().front().file, folder_ + "/list.log", fine);
  if (!fine || known.empty()) return std::nullopt;
  (void)everything_killed();
  within(5s, [] { return descendants().empty(); });
  std::uint64_t refused = 0, whole = 0;
  Row& row = rows_["data_damaged"];
  for (int i = 0; i < 6; ++i) {
    const std::string copy = folder_ + "/copy";
    std::error_code error;
    fs::remove_all(copy, error);
    fs::copy(data_, copy, fs::copy_options::recursive, error);
    ::chmod(copy.c_str(), 0700);
    const std::string what = i == 0 ? "nothing" : damage(copy, random_);
    if (what.empty()) continue;
    const std::string file = folder_ + "/copy.json";
    Child child = start({options_.command, "up", "--nodes", "1", "--cpus", "1", "--memory", "32MiB",
                         "--data-folder", copy, "--file", file},
                        {}, folder_ + "/copy.log", true);
    const std::string text = read_all(child.out, 20s);
    const json document = json::parse(text, nullptr, false);
    if (document.is_object() && document.contains("cluster")) {
      const auto there = jobs_of(options_.command, file, folder_ + "/list.log", fine);
      ++whole;
      if (!std::includes(there.begin(), there.end(), known.begin(), known.end()))
        bad("data_damaged", "lost",
            "control serves without acknowledged jobs after damage: " + what);
      hit(child.pid, SIGTERM);
      if (wait_for(child.pid, 10s) < 0) bad("data_damaged", "hung", "a cluster does not end");
    } else {
      ++refused;
      if (i == 0) bad("data_damaged", "lost", "a healthy folder was refused: " + text);
      if (text.find(copy) == std::string::npos)
        bad("data_damaged", "wrong",
            std::string("refused without naming the folder, after ").append(what) + ": " + text);
      if (wait_for(child.pid, 10s) < 0) bad("data_damaged", "hung", "a refused start does not end");
    }
    if (i > 0) ++row.work.records;
    close_ends(child);
    for (const Process& process : descendants()) hit(process.pid);
  }
  row.work.refused += refused;
  (void)whole;
  return Injected{};
}

// --- the end

Chaos::Effect Chaos::everything_killed() {
  Injected injected;
  std::vector<Process> all = descendants();
  std::shuffle(all.begin(), all.end(), random_);
  if (all.size() < 6) return std::nullopt;
  // Half of the other processes must end by themselves. Launchers and drivers are always killed.
  for (const Process& process : all)
    if (process.name == "troupe" || process.name == "chaos" || random_() % 2 == 0) hit(process.pid);
  return injected;
}

Chaos::Effect Chaos::everything_ended() {
  Injected injected;
  if (!driver_->finish()) bad("everything_ended", "hung", "the load did not end well");
  injected.at = Clock::now();
  if (const std::string why = cluster_->stop(); !why.empty()) bad("everything_ended", "hung", why);
  return injected;
}

}  // namespace chaos
