/// Addresses of the rendezvous: where rank 0 of a launched world listens, and how the other ranks
/// connect.
#pragma once

#include "troupe/actors/collective/internal/launch.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <sys/socket.h>

#include <string>
#include <vector>

namespace troupe::collective::internal {

struct Endpoint {
  sockaddr_storage at{};
  socklen_t size = 0;
};

/// Returns "host:port", with an IPv6 address in brackets.
std::string text_of(const Launch& launch);

/// Returns the addresses of the host's name, each once. The system's resolver may block beyond the
/// deadline. Throws InvalidArgument for a name that does not exist, Unavailable when the resolver
/// does not answer by the deadline.
std::vector<Endpoint> resolve(const Launch& launch, Time deadline);

/// Listens at every address of the host that this machine has, or at all addresses of the machine
/// when it has none of them. Throws Unavailable when the port is in use and stays so for half a
/// second.
std::vector<Fd> listen_at(const Launch& launch, Time deadline);

/// Returns an established connection, or an empty descriptor, with errno, when there is none by the
/// deadline.
Fd connect_to(const Endpoint& endpoint, Time deadline);

}  // namespace troupe::collective::internal
