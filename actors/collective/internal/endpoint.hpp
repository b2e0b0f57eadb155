/// Where rank 0 of a launched world listens, and how others reach it.
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

/// "host:port", an IPv6 address in brackets.
std::string text_of(const Launch& launch);

/// What the name of the host stands for, each once. The system's resolver may block beyond the
/// deadline. Throws InvalidArgument for a name that does not exist, Unavailable when the resolver
/// does not answer until the deadline.
std::vector<Endpoint> resolve(const Launch& launch, Time deadline);

/// Listens at every address of the host that this machine has; at all of its own when it has none
/// of them. Throws Unavailable when the port is in use, and remains so for half a second.
std::vector<Fd> listen_at(const Launch& launch, Time deadline);

/// A connection that is established; none, with errno, when there is none by the deadline.
Fd connect_to(const Endpoint& endpoint, Time deadline);

}  // namespace troupe::collective::internal
