/// The numbers of Transfers: pulls, transfers and bulk connections.
#pragma once

#include "troupe/runtime/base/ids.hpp"

namespace troupe::agent {

/// A fetch of one object by this node.
using PullId = Number<struct PullTag>;
/// One request for an object, as the asker counts them: the number in the Pull messages.
using TransferId = Number<struct TransferTag>;
/// A bulk connection, as its node counts those of one direction.
using ConnectionId = Number<struct ConnectionTag>;

}  // namespace troupe::agent
