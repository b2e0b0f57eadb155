/// The address on which a node listens for the other nodes of its cluster.
///
///     auto listen = listen_address("", "tcp://10.0.0.1:6500");   // "tcp://10.0.0.7:*"
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <string>

namespace troupe::os {

/// Returns the door of a node that joins the cluster whose control is at `control_door`, with any
/// free port. If `wanted` is empty, it is this machine's source address of packets to control, so
/// that machines which reach control can usually reach the node. Otherwise it is `wanted`. Errors:
/// InvalidArgument when `wanted` is a loopback address and control's address is not. Sends nothing.
Result<std::string> listen_address(const std::string& wanted, const std::string& control_door);

/// Returns an address of this machine as numbers, for `--listen`: that of a host name, and an
/// address or the name of an interface as it is. Of several addresses of a name, one that other
/// hosts reach is preferred. May ask a name server, so it may block for as long as the system's
/// resolver does. Error: InvalidArgument for an IPv6 address, and for a name without an IPv4 one.
Result<std::string> resolve_listen(const std::string& host);

/// Error: Unavailable when this machine's loopback interface is down.
Result<void> check_loopback();

/// The door of a node whose cluster has no other host: the loopback address.
inline constexpr const char* kListenHere = "tcp://127.0.0.1:*";

}  // namespace troupe::os
