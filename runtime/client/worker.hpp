/// The main loop of a worker process: it takes the next call, runs it and answers, until the
/// agent ends the worker.
#pragma once

#include "troupe/runtime/client/engine.hpp"

namespace troupe::client {

/// Connects the engine over the socket and runs calls until told to stop. Ends the process; never
/// returns. `name`: the page in which the agent reads the name of what runs; it may be missing.
[[noreturn]] void run_worker(Fd socket, std::uint64_t token, Fd name = {});

}  // namespace troupe::client
