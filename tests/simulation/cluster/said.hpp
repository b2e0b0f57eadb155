/// Describes a message in one line, for the log of a replay.
#pragma once

#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <string>

namespace troupe::sim::cluster {

std::string said(const wire::PeerMessage& message);
std::string said(const control::ToControl& message);
std::string said(const control::FromControl& message);

}  // namespace troupe::sim::cluster
