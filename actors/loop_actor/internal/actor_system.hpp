/// The CAF actor system of this process and the message types of loop actors. Only the .cpp files
/// of loop_actor/ include it.
///
/// It uses CAF's core only, since CAF's network library lets a peer spawn and kill actors without a
/// check. The message types are marked unsafe, so CAF cannot make one from bytes.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/all.hpp>

#include <functional>
#include <memory>

namespace troupe::loops {

/// Returns the actor system, which the first call makes and which lives as long as the process. It
/// has three threads, for handlers, timers and CAF's own printer, with signals blocked. Throws
/// Unavailable when the system gives no more threads.
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
