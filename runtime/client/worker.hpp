/// The main loop of a worker process: it takes the next call, runs it and answers, until the
/// agent ends the worker.
#pragma once

#include "troupe/runtime/client/engine.hpp"

namespace troupe::client {

/// Connects the engine over the socket and runs calls until told to stop. Ends the process; never
/// returns. `page`: of its ProcessPage; it may be missing.
[[noreturn]] void run_worker(Fd socket, std::uint64_t token, Fd page = {});

}  // namespace troupe::client
