#include "troupe/runtime/os/listen_address.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace troupe::os {
namespace {

constexpr std::string_view kScheme = "tcp://";

/// Splits "tcp://10.0.0.1:6500" into "10.0.0.1" and "6500".
std::pair<std::string, std::string> parts_of(std::string_view door) {
  if (door.substr(0, kScheme.size()) == kScheme) door.remove_prefix(kScheme.size());
  const auto colon = door.rfind(':');
  std::string_view host = door.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return {std::string(host), colon == door.npos ? "" : std::string(door.substr(colon + 1))};
}

bool is_loopback(std::string_view host) {
  return host.substr(0, 4) == "127." || host == "::1";
}

/// Returns this machine's source address for packets to that host, from the kernel's routes; empty:
/// there is no route.
std::string address_towards(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;  // so no name server is asked
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> entry(found, &freeaddrinfo);
  const Fd fd = make_fd(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char text[NI_MAXHOST];
  // connect() of a datagram socket selects its source address and sends nothing.
  if (!fd || ::connect(fd.get(), entry->ai_addr, entry->ai_addrlen) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return "";
  return text;
}

}  // namespace

Result<std::string> resolve_listen(const std::string& host) {
  if (host.find_first_of(":[]") != host.npos)
    return Error(Code::invalid_argument,
                 "'" + host +
                     "' is an IPv6 address, which troupe does not support: give an IPv4 "
                     "address of this machine, or a name that has one");
  in_addr number{};
  if (inet_pton(AF_INET, host.c_str(), &number) == 1 || if_nametoindex(host.c_str()) != 0)
    return host;
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return Error(Code::invalid_argument,
                 "'" + host + "' has no IPv4 address: " + gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, &freeaddrinfo);
  std::string address;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
        0)
      continue;
    if (address.empty() || (is_loopback(address) && !is_loopback(text))) address = text;
  }
  return address;
}

Result<void> check_loopback() {
  const Fd fd = make_fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq asked{};
  std::strcpy(asked.ifr_name, "lo");
  if (!fd || ::ioctl(fd.get(), SIOCGIFFLAGS, &asked) != 0 || (asked.ifr_flags & IFF_UP) != 0)
    return {};  // up, or unknown
  return Error(
      Code::unavailable,
      "the loopback interface (lo) is down, over which the nodes of one machine reach each "
      "other: bring it up ('ip link set lo up'), or run on one node");
}

Result<std::string> listen_address(const std::string& wanted, const std::string& control_door) {
  const auto [host, port] = parts_of(control_door);
  std::string own = is_loopback(host) ? "" : address_towards(host, port);
  if (own.find(':') != own.npos) own = "[" + own + "]";
  if (wanted.empty()) return own.empty() ? kListenHere : std::string(kScheme) + own + ":*";
  if (is_loopback(host) || !is_loopback(parts_of(wanted).first)) return wanted;
  return Error(Code::invalid_argument,
               "--listen " + parts_of(wanted).first + ": the cluster is reached at " +
                   control_door +
                   ", and no other host reaches a node on the loopback address. Leave --listen "
                   "out" +
                   (own.empty() ? "" : ", which listens at " + own) +
                   ", or give it an address of this machine that the other nodes reach");
}

}  // namespace troupe::os
