#include "troupe/runtime/os/launch.hpp"

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/os/local_socket.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace troupe::os {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSecret = net::SecretKey::size();
constexpr std::size_t kMaxName = 256;
constexpr std::size_t kMaxFolder = 4096;
constexpr std::size_t kMaxRows = 64;
constexpr double kMaxUnits = 1e6;

/// A wrong field and the reason. Thrown and caught in this file only.
struct Bad {
  std::string what;
};

/// Bytes that hold a secret. The destructor wipes them.
struct Packet {
  std::array<std::byte, kMaxPacket> bytes;
  std::size_t size = 0;
  ~Packet() { net::wipe(bytes.data(), bytes.size()); }
};

bool wait_for(int socket, short events, Time until) {
  for (;;) {
    const Duration left = std::max<Duration>(until - steady_now(), Duration(0));
    pollfd entry{socket, events, 0};
    const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int ready = poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(whole, 600'000)));
    if (ready > 0) return true;
    if (ready == 0 && steady_now() >= until) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

/// Sends the bytes as one packet, with the descriptor beside them unless it is -1.
ssize_t send_with(int socket, Packet& packet, int descriptor) {
  iovec part{packet.bytes.data(), packet.size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof descriptor)] = {};
  if (descriptor >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Receives one packet, and a descriptor if one comes with it. Others are closed.
ssize_t receive_with(int socket, Packet& packet, Fd& descriptor) {
  iovec part{packet.bytes.data(), packet.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))];
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(h), sizeof fd);
    descriptor = make_fd(fd);
  }
  return n;
}

Result<void> send_packet(int socket, const net::SecretKey* secret, const Json& document,
                         int descriptor = -1) {
  const std::string text = document.dump();
  if (text.size() + kSecret > kMaxPacket)
    return Error(Code::invalid_argument, "the configuration of a process takes " +
                                             std::to_string(text.size()) +
                                             " bytes, more than fit its packet of 32 KiB");
  Packet packet;
  std::memset(packet.bytes.data(), 0, kSecret);
  if (secret != nullptr) std::memcpy(packet.bytes.data(), secret->data(), kSecret);
  std::memcpy(packet.bytes.data() + kSecret, text.data(), text.size());
  packet.size = kSecret + text.size();
  const Time until = steady_now() + 1s;
  while (send_with(socket, packet, descriptor) < 0) {
    if (errno == EINTR) continue;
    if ((errno == EAGAIN || errno == ENOBUFS) && wait_for(socket, POLLOUT, until)) continue;
    return Error(
        Code::unavailable,
        std::string("the other process cannot be told its configuration: ") + std::strerror(errno));
  }
  return {};
}

Result<Json> receive_packet(int socket, Duration limit, const std::string& who,
                            net::SecretKey* secret, Fd* with = nullptr) {
  if (!wait_for(socket, POLLIN, steady_now() + limit))
    return Error(
        Code::timed_out,
        who + " did not answer within " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()) +
            " ms");
  Packet packet;
  ssize_t n = 0;
  Fd descriptor;
  do {
    n = receive_with(socket, packet, descriptor);
  } while (n < 0 && errno == EINTR);
  if (n <= 0)
    return Error(Code::unavailable, who + " ended before it answered (its connection closed)");
  packet.size = static_cast<std::size_t>(n);
  if (packet.size > packet.bytes.size() || packet.size < kSecret)
    return Error(Code::invalid_argument,
                 who + " sent a packet of " + std::to_string(packet.size) + " bytes");
  if (secret != nullptr) std::memcpy(secret->data(), packet.bytes.data(), kSecret);
  if (with != nullptr) *with = std::move(descriptor);
  const auto* text = reinterpret_cast<const char*>(packet.bytes.data());
  auto document = Json::parse({text + kSecret, packet.size - kSecret});
  if (!document || !document->is_object())
    return Error(Code::invalid_argument, who + " sent a packet that is no JSON object");
  return document;
}

const Json& field(const Json& document, const char* name) {
  const Json* found = document.find(name);
  if (found == nullptr) throw Bad{std::string("field ") + name + " is missing"};
  return *found;
}

std::string text_of(const Json& document, const char* name, std::size_t most = kMaxName) {
  const std::string* text = field(document, name).as_text();
  if (text == nullptr) throw Bad{std::string("field ") + name + " is no text"};
  if (text->size() > most || text->find('\0') != std::string::npos)
    throw Bad{std::string("field ") + name + " is longer than " + std::to_string(most) +
              " bytes, or holds a zero"};
  return *text;
}

bool flag_of(const Json& document, const char* name) {
  const bool* flag = field(document, name).as_bool();
  if (flag == nullptr) throw Bad{std::string("field ") + name + " is neither true nor false"};
  return *flag;
}

double units_in(const Json& value, const char* name) {
  const double units = value.as_number().value_or(-1);
  if (!(units >= 0) || units > kMaxUnits)
    throw Bad{std::string("field ") + name + " is no amount between 0 and 1000000"};
  return units;
}

template <class IdType>
IdType id_of(const Json& document, const char* name) {
  const auto id = IdType::parse(text_of(document, name));
  if (!id || !*id) throw Bad{std::string("field ") + name + " is no id"};
  return *id;
}

net::PublicKey key_of(const Json& document, const char* name) {
  auto key = net::PublicKey::parse(text_of(document, name));
  if (!key) throw Bad{std::string("field ") + name + " is no public key"};
  return *key;
}

const Json::Array& rows_of(const Json& document, const char* name, std::size_t most) {
  const Json::Array* rows = field(document, name).as_array();
  if (rows == nullptr || rows->size() > most)
    throw Bad{std::string("field ") + name + " is no list of at most " + std::to_string(most)};
  return *rows;
}

void check_kind(const Json& document, const char* kind) {
  if (text_of(document, "kind") != kind) throw Bad{std::string("it is no ") + kind};
}

/// Throws if a name is empty or appears twice. Precondition: the pairs are sorted by name.
template <class Pairs>
void check_names(const Pairs& pairs, const char* what) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].first.empty()) throw Bad{std::string("a ") + what + " has no name"};
    if (i > 0 && pairs[i].first == pairs[i - 1].first)
      throw Bad{std::string("the ") + what + " '" + pairs[i].first + "' is there twice"};
  }
}

// Reads and checks. Also used before sending, so that a bound holds on both sides.

NodeOffer offer_of(const Json& document) {
  NodeOffer offer;
  offer.cpus = units_in(field(document, "cpus"), "cpus");
  offer.gpus = units_in(field(document, "gpus"), "gpus");
  const auto memory = field(document, "memory").as_whole<std::uint64_t>();
  if (!memory || *memory > 1'000'000'000'000'000ULL)
    throw Bad{"field memory is no number of bytes"};
  offer.memory = Bytes{*memory};
  for (const Json& row : rows_of(document, "labels", kMaxRows))
    offer.labels.emplace_back(text_of(row, "name"), text_of(row, "value"));
  for (const Json& row : rows_of(document, "resources", kMaxRows))
    offer.resources.emplace_back(text_of(row, "name"), units_in(field(row, "value"), "resources"));
  check_names(offer.labels, "label");
  check_names(offer.resources, "resource");
  return offer;
}

AgentConfig agent_of(const Json& document) {
  check_kind(document, "agent");
  AgentConfig config;
  static_cast<NodeOffer&>(config) = offer_of(document);
  config.cluster = id_of<ClusterId>(document, "cluster");
  config.node = id_of<NodeId>(document, "node");
  config.name = text_of(document, "name");
  config.without_slots = flag_of(document, "withoutSlots");
  config.keys.public_key = key_of(document, "publicKey");
  const Json& control = field(document, "control");
  if (!control.is_object()) throw Bad{"field control is no object"};
  config.control.node = id_of<NodeId>(control, "node");
  config.control.key = key_of(control, "publicKey");
  config.control.door = text_of(control, "door");
  config.listen = text_of(document, "listen");
  config.socket_name = text_of(document, "socketName", 100);
  const auto together = field(document, "together").as_whole<std::uint32_t>();
  if (!together || *together > kMaxAdmitted) throw Bad{"field together is no number of nodes"};
  config.together = *together;
  config.beside_control = flag_of(document, "besideControl");
  config.embedded = flag_of(document, "embedded");
  config.log_folder = text_of(document, "logFolder", kMaxFolder);
  const auto log_bytes = field(document, "logBytes").as_whole<std::uint64_t>();
  if (!log_bytes) throw Bad{"field logBytes is no number of bytes"};
  config.log_bytes = Bytes{*log_bytes};
  return config;
}

ControlConfig control_of(const Json& document) {
  check_kind(document, "control");
  ControlConfig config;
  config.cluster = id_of<ClusterId>(document, "cluster");
  config.node = id_of<NodeId>(document, "node");
  config.keys.public_key = key_of(document, "publicKey");
  config.data_folder = text_of(document, "dataFolder", kMaxFolder);
  config.listen = text_of(document, "listen");
  for (const Json& row : rows_of(document, "admitted", kMaxAdmitted))
    config.admitted.push_back({id_of<NodeId>(row, "node"), key_of(row, "publicKey")});
  for (const Json& row : rows_of(document, "joinKeys", kMaxJoinKeys))
    config.join_keys.push_back(key_of(row, "publicKey"));
  return config;
}

Ready ready_of(const Json& document) {
  check_kind(document, "ready");
  return {text_of(document, "door"), text_of(document, "error", kMaxFolder)};
}

Json json_of(const NodeOffer& offer) {
  Json labels = Json::array(), resources = Json::array();
  for (const auto& [name, value] : offer.labels)
    labels.push_back({{"name", name}, {"value", value}});
  for (const auto& [name, value] : offer.resources)
    resources.push_back({{"name", name}, {"value", value}});
  return {{"cpus", offer.cpus},
          {"gpus", offer.gpus},
          {"memory", offer.memory.count},
          {"labels", std::move(labels)},
          {"resources", std::move(resources)}};
}

Json json_of(const AgentConfig& config) {
  Json document = json_of(static_cast<const NodeOffer&>(config));
  document["kind"] = "agent";
  document["cluster"] = config.cluster.str();
  document["node"] = config.node.str();
  document["name"] = config.name;
  document["withoutSlots"] = config.without_slots;
  document["publicKey"] = config.keys.public_key.str();
  document["control"] = {{"node", config.control.node.str()},
                         {"publicKey", config.control.key.str()},
                         {"door", config.control.door}};
  document["listen"] = config.listen;
  document["socketName"] = config.socket_name;
  document["together"] = config.together;
  document["besideControl"] = config.beside_control;
  document["embedded"] = config.embedded;
  document["logFolder"] = config.log_folder;
  document["logBytes"] = config.log_bytes.count;
  return document;
}

Json json_of(const ControlConfig& config) {
  Json admitted = Json::array(), join_keys = Json::array();
  for (const net::PublicKey& key : config.join_keys)
    join_keys.push_back({{"publicKey", key.str()}});
  for (const Admitted& row : config.admitted)
    admitted.push_back({{"node", row.node.str()}, {"publicKey", row.key.str()}});
  return {{"kind", "control"},
          {"cluster", config.cluster.str()},
          {"node", config.node.str()},
          {"publicKey", config.keys.public_key.str()},
          {"dataFolder", config.data_folder},
          {"listen", config.listen},
          {"admitted", std::move(admitted)},
          {"joinKeys", std::move(join_keys)}};
}

template <class Read>
auto checked(const Json& document, const std::string& who, Read read)
    -> Result<decltype(read(document))> {
  try {
    return read(document);
  } catch (const Bad& bad) {
    return Error(Code::invalid_argument, who + ": " + bad.what);
  }
}

template <class Config, class Read>
Result<Config> receive_config(int socket, Duration limit, Read read, Fd* with = nullptr) {
  net::SecretKey secret;
  auto document = receive_packet(socket, limit, "the launcher", &secret, with);
  if (!document) return document.error();
  auto config = checked(*document, "the launcher's configuration", read);
  if (config) config->keys.secret_key = std::move(secret);
  return config;
}

}  // namespace

Result<std::string> offer_text(const NodeOffer& offer) {
  const Json document = json_of(offer);
  if (auto ok = checked(document, "what the node offers", offer_of); !ok) return ok.error();
  return document.dump();
}

Result<NodeOffer> parse_offer(const std::string& text) {
  const auto document = Json::parse(text);
  if (!document || !document->is_object())
    return Error(Code::invalid_argument, "what the node offers is no JSON object");
  return checked(*document, "what the node offers", offer_of);
}

Result<void> send_config(int socket, const AgentConfig& config) {
  const Json document = json_of(config);
  if (auto ok = checked(document, "the configuration of " + config.name, agent_of); !ok)
    return ok.error();
  return send_packet(socket, &config.keys.secret_key, document);
}

Result<void> send_config(int socket, const ControlConfig& config) {
  const Json document = json_of(config);
  if (auto ok = checked(document, "the configuration of control", control_of); !ok)
    return ok.error();
  return send_packet(socket, &config.keys.secret_key, document, config.store.get());
}

Result<void> send_ready(int socket, const Ready& ready) {
  return send_packet(
      socket, nullptr,
      {{"kind", "ready"}, {"door", ready.door}, {"error", ready.error.substr(0, kMaxFolder - 16)}});
}

Result<AgentConfig> receive_agent_config(int socket, Duration limit) {
  return receive_config<AgentConfig>(socket, limit, agent_of);
}

Result<ControlConfig> receive_control_config(int socket, Duration limit) {
  Fd store;
  auto config = receive_config<ControlConfig>(socket, limit, control_of, &store);
  if (config) config->store = std::move(store);
  return config;
}

Result<Ready> receive_ready(int socket, Duration limit, const std::string& who) {
  auto document = receive_packet(socket, limit, who, nullptr);
  if (!document) return document.error();
  return checked(*document, who, ready_of);
}

void raise_file_limit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::uint64_t file_limit() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

}  // namespace troupe::os
