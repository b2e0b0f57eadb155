/// The engine through which this process speaks to its node.
#pragma once

#include <atomic>

namespace troupe::client {

class ClientEngine;

/// The engine of this process. A program that simulates several processes in one exchanges it when
/// another of them goes on.
struct CurrentEngine {
  std::atomic<ClientEngine*> any{nullptr};
  /// The same while no SessionEngine stands before it. A release then needs no visit.
  std::atomic<ClientEngine*> unvisited{nullptr};
};
extern CurrentEngine current_engine;

}  // namespace troupe::client
