/// CAF in this process. Only this folder's .cpp files see it.
///
/// CAF's core alone: its network library lets a peer spawn and kill actors unasked. Message types
/// are marked unsafe, so CAF has no way to make one of bytes.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/all.hpp>

#include <functional>
#include <memory>

namespace troupe::loops {

/// Made by the first call, with three threads, for handlers, timers and CAF's own printer, that
/// take no signals; it lives as long as the process. Throws Unavailable when there are no threads.
caf::actor_system& actor_system();

using Work = std::shared_ptr<const std::function<void()>>;
using Message = std::shared_ptr<void>;
using work_atom = caf::atom_constant<caf::atom("work")>;
using message_atom = caf::atom_constant<caf::atom("message")>;
using timer_atom = caf::atom_constant<caf::atom("timer")>;
using close_atom = caf::atom_constant<caf::atom("close")>;
using ready_atom = caf::atom_constant<caf::atom("ready")>;
using forget_atom = caf::atom_constant<caf::atom("forget")>;

}  // namespace troupe::loops

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::loops::Work)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::loops::Message)
