/// A worker's life: take the next call, run it, answer; until the agent says enough.
#pragma once

#include "troupe/runtime/client/engine.hpp"

namespace troupe::client {

/// Says hello over the socket and runs calls until told to stop. Ends the process; never returns.
[[noreturn]] void run_worker(Fd socket, std::uint64_t token);

}  // namespace troupe::client
