#include "troupe/runtime/os/cluster_file.hpp"

#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/version.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace troupe::os {
namespace {

constexpr const char* kAddress = "TROUPE_ADDRESS";
constexpr std::size_t kMaxFile = 64 * 1024;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxDoors = 256;
constexpr const char* kPrefix = "cluster-";
constexpr const char* kSuffix = ".json";

std::string reason() {
  return std::strerror(errno);
}

Error refused(const std::string& path, const std::string& why) {
  return Error(Code::invalid_argument, "the cluster file " + path + " " + why);
}

/// Thrown and caught in this file only.
struct BadFile {
  std::string what;
};

std::string file_text(const Json& document, const char* name) {
  const Json* field = document.find(name);
  const std::string* text = field != nullptr ? field->as_text() : nullptr;
  if (text == nullptr) throw BadFile{std::string("its ") + name + " is missing or no text"};
  if (text->size() > kMaxText || text->find('\0') != std::string::npos)
    throw BadFile{std::string("its ") + name + " is too long"};
  return *text;
}

std::uint64_t file_number(const Json& document, const char* name, std::uint64_t most) {
  const Json* field = document.find(name);
  const auto number = field != nullptr ? field->as_whole<std::uint64_t>() : std::nullopt;
  if (!number || *number > most)
    throw BadFile{std::string("its ") + name + " is missing or no number up to " +
                  std::to_string(most)};
  return *number;
}

template <class IdType>
IdType file_id(const Json& document, const char* name) {
  const auto id = IdType::parse(file_text(document, name));
  if (!id || !*id) throw BadFile{std::string("its ") + name + " is no id"};
  return *id;
}

/// Returns the texts of a list that may be missing.
std::vector<std::string> file_texts(const Json& document, const char* name) {
  const Json* field = document.find(name);
  if (field == nullptr) return {};
  const auto* list = field->as_array();
  if (list == nullptr || list->size() > kMaxDoors)
    throw BadFile{std::string("its ") + name + " is no list of at most " +
                  std::to_string(kMaxDoors)};
  std::vector<std::string> texts;
  for (const Json& one : *list) {
    const std::string* text = one.as_text();
    if (text == nullptr || text->size() > kMaxText || text->find('\0') != std::string::npos)
      throw BadFile{std::string("its ") + name + " has a bad text"};
    texts.push_back(*text);
  }
  return texts;
}

ClusterFile file_of(const Json& document) {
  if (file_number(document, "format", 1000) != 1) throw BadFile{"its format is not 1"};
  ClusterFile file;
  file.version = file_text(document, "version");
  file.protocol = static_cast<std::uint32_t>(file_number(document, "protocol", 1u << 30));
  if (file.protocol != kProtocolVersion)
    throw BadFile{"its cluster runs troupe " + file.version + " with protocol " +
                  std::to_string(file.protocol) + ", this is troupe " +
                  std::string(TROUPE_VERSION_TEXT) + " with protocol " +
                  std::to_string(kProtocolVersion) + ": use the same troupe on both sides"};
  file.cluster = file_id<ClusterId>(document, "cluster");
  file.node = file_id<NodeId>(document, "node");
  file.node_name = file_text(document, "nodeName");
  file.socket_name = file_text(document, "socketName");
  file.control_door = file_text(document, "controlDoor");
  file.nodes = static_cast<std::uint32_t>(file_number(document, "nodes", 1'000'000));
  file.launcher = static_cast<pid_t>(file_number(document, "launcher", 1u << 30));
  file.launched = file_number(document, "launched", UINT64_MAX);
  file.other_doors = file_texts(document, "otherDoors");
  return file;
}

Result<std::string> read_whole(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && (errno == ENOENT || errno == ENOTDIR))
    return Error(Code::unavailable,
                 "there is no cluster file " + path +
                     ": the cluster has ended, or the path is wrong; start one with 'troupe up'");
  if (!fd && errno == ELOOP) return refused(path, "is a link; name the file itself");
  if (!fd) return refused(path, "cannot be read: " + reason());
  struct stat about{};
  if (fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode))
    return refused(path, "is no plain file");
  if (about.st_uid != geteuid())
    return refused(path, "belongs to user " + std::to_string(about.st_uid) + ", not to user " +
                             std::to_string(geteuid()) +
                             " who runs this; a cluster is joined by its owner only");
  if ((about.st_mode & 077) != 0)
    return refused(path,
                   "is open to others: if 'troupe' wrote it and nobody has changed it, run "
                   "'chmod 600 " +
                       path + "'; else give the file of another cluster");
  std::string text(kMaxFile + 1, '\0');
  std::size_t size = 0;
  for (ssize_t n = 0; size < text.size(); size += static_cast<std::size_t>(n)) {
    n = read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0) return refused(path, "cannot be read: " + reason());
    if (n == 0) break;
  }
  if (size > kMaxFile) return refused(path, "is larger than 64 KiB, so it is no cluster file");
  text.resize(size);
  return text;
}

}  // namespace

std::string address_of_environment() {
  return Environment().text(kAddress).value_or("");
}

void set_address_of_environment(const std::string& address) {
  setenv(kAddress, address.c_str(), 1);
}

std::string cluster_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return std::string(runtime) + "/troupe";
  return "/tmp/troupe-" + std::to_string(geteuid());
}

Result<std::string> make_cluster_folder() {
  const std::string path = cluster_folder();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Error(Code::out_of_disk, "the folder " + path + " cannot be made: " + reason() +
                                        "; set XDG_RUNTIME_DIR to a folder of yours");
  struct stat about{};
  if (lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode))
    return Error(Code::invalid_argument, path + " is no folder: remove it");
  if (about.st_uid != geteuid() || (about.st_mode & 077) != 0)
    return Error(Code::invalid_argument,
                 "the folder " + path + " is not yours alone (owner " +
                     std::to_string(about.st_uid) +
                     "): remove it, or set XDG_RUNTIME_DIR to a folder of yours");
  return path;
}

std::string default_cluster_file(ClusterId cluster, const std::string& more) {
  return cluster_folder() + "/" + kPrefix + cluster.str().substr(0, 8) +
         (more.empty() ? "" : "-" + more) + kSuffix;
}

Result<void> write_cluster_file(const std::string& path, const ClusterFile& file) {
  const Json document = {{"format", 1},
                         {"version", file.version},
                         {"protocol", file.protocol},
                         {"cluster", file.cluster.str()},
                         {"node", file.node.str()},
                         {"nodeName", file.node_name},
                         {"socketName", file.socket_name},
                         {"controlDoor", file.control_door},
                         {"nodes", file.nodes},
                         {"launcher", file.launcher},
                         {"launched", file.launched},
                         {"otherDoors", file.other_doors}};
  const std::string text = document.dump(2) + "\n";
  const std::string draft = path + "." + std::to_string(getpid());
  const auto failed = [&](const char* what) {
    const Error error(Code::out_of_disk,
                      "the cluster file " + path + " cannot be " + what + ": " + reason());
    unlink(draft.c_str());
    return error;
  };
  unlink(draft.c_str());
  Fd fd(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return failed("made");
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd.get(), text.data() + at, text.size() - at);
    if (n < 0) return failed("written");
    at += static_cast<std::size_t>(n);
  }
  if (rename(draft.c_str(), path.c_str()) != 0) return failed("put in place");
  return {};
}

Result<ClusterFile> read_cluster_file(const std::string& path) {
  const auto text = read_whole(path);
  if (!text) return text.error();
  const auto document = Json::parse(*text);
  if (!document || !document->is_object())
    return refused(path, "is no cluster file: it holds no JSON object");
  try {
    return file_of(*document);
  } catch (const BadFile& bad) {
    return refused(path, "cannot be used: " + bad.what);
  }
}

std::uint64_t start_of(pid_t pid) {
  const Fd fd(open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[1024];
  const ssize_t n = fd ? read(fd.get(), buffer, sizeof buffer - 1) : -1;
  if (n <= 0) return 0;
  buffer[n] = '\0';
  // The name in brackets may hold anything; field 3, the state, follows the last bracket.
  const char* at = std::strrchr(buffer, ')');
  if (at == nullptr || at[1] == '\0' || at[2] == 'Z') return 0;
  for (int field = 2; field < 22 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at + 1, nullptr, 10);
}

bool is_launched(const ClusterFile& file) {
  const std::uint64_t start = start_of(file.launcher);
  return start != 0 && start == file.launched;
}

std::vector<FoundCluster> running_clusters() {
  const std::string folder = cluster_folder();
  std::vector<FoundCluster> found;
  DIR* listing = opendir(folder.c_str());
  if (listing == nullptr) return found;
  while (const dirent* entry = readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.rfind(kPrefix, 0) != 0 || name.size() < 6 ||
        name.compare(name.size() - 5, 5, kSuffix) != 0)
      continue;
    std::string path = folder;
    path += '/';
    path += name;
    FoundCluster cluster{std::move(path), {}};
    auto file = read_cluster_file(cluster.path);
    if (!file) continue;
    cluster.file = std::move(*file);
    if (is_launched(cluster.file))
      found.push_back(std::move(cluster));
    else
      unlink(cluster.path.c_str());
  }
  closedir(listing);
  std::sort(found.begin(), found.end(), [](const FoundCluster& a, const FoundCluster& b) {
    return a.file.launched != b.file.launched ? a.file.launched > b.file.launched : a.path < b.path;
  });
  return found;
}

}  // namespace troupe::os
