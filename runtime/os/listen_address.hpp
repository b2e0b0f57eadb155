/// Where a node listens for the others of its cluster.
///
///     auto listen = listen_address("", "tcp://10.0.0.1:6500");   // "tcp://10.0.0.7:*"
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <string>

namespace troupe::os {

/// The door of a node that joins the cluster whose control is at `control_door`; any free port.
/// With `wanted` empty it is the address of this machine from which packets go to control, so
/// whoever reaches control can reach the node. Else it is `wanted`; InvalidArgument when that is a
/// loopback address and control is reached at another. Sends nothing.
Result<std::string> listen_address(const std::string& wanted, const std::string& control_door);

/// The same without another host: the loopback address.
inline constexpr const char* kListenHere = "tcp://127.0.0.1:*";

}  // namespace troupe::os
