/// The back ends on which all contracts of the collectives run, each with operations on the
/// calling thread and on a thread of the communicator. The NCCL back end uses a library of the
/// tests in NCCL's place, and queues of the host; neither NCCL nor a GPU takes part.
#pragma once

#include "tests/actors/nodes_group.hpp"
#include "tests/actors/on_all.hpp"
#include "tests/device/nccl_group.hpp"
#include "troupe/actors/collective/local/local.hpp"
#include "troupe/actors/collective/shm/shm.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::collective {

struct BackEnd {
  const char* name;
  Progress progress;
  Group (*make)(int size, Bytes slot, Duration timeout, Progress progress);
  bool ordered = true;  ///< COLL-2, and the rules for 16-bit numbers and NaNs
  bool spread = false;  ///< over nodes: each node finds a fault by itself, and texts may differ
  bool meets = true;    ///< all ranks meet in each operation, else those of a node
};

inline Group make_local(int size, Bytes slot, Duration timeout, Progress progress) {
  return local_group(size, {.timeout = timeout, .slot = slot, .progress = progress});
}
inline Group make_shm(int size, Bytes slot, Duration timeout, Progress progress) {
  const Fd memory = create_shm_group({.size = size, .generation = 3, .slot = slot});
  Group group;
  for (int rank = 0; rank < size; ++rank)
    group.push_back(join_shm_group(memory, rank, 3, timeout, progress));
  return group;
}

inline Group make_nccl(int size, Bytes slot, Duration timeout, Progress progress) {
  Group group = over_fake_nccl(make_local(size, slot, std::chrono::seconds(20), progress));
  for (const auto& rank : group) rank->set_timeout(timeout);
  return group;
}

inline Group make_nccl_nodes(int size, Bytes slot, Duration timeout, Progress progress) {
  Group group = over_fake_nccl(nodes_group(two_a_node(size), {.slot = slot, .progress = progress}));
  for (const auto& rank : group) rank->set_timeout(timeout);
  return group;
}

template <std::vector<int> (*ranks_on)(int)>
Group make_nodes(int size, Bytes slot, Duration timeout, Progress progress) {
  return nodes_group(ranks_on(size), {.slot = slot, .timeout = timeout, .progress = progress});
}

inline const auto kBackEnds = testing::Values(
    BackEnd{"local", Progress::caller, make_local}, BackEnd{"shm", Progress::caller, make_shm},
    BackEnd{"local_thread", Progress::thread, make_local},
    BackEnd{"shm_thread", Progress::thread, make_shm},
    BackEnd{"nccl", Progress::caller, make_nccl, false},
    BackEnd{"nccl_two_a_node", Progress::caller, make_nccl_nodes, false, true, false},
    BackEnd{"one_a_node", Progress::caller, make_nodes<one_a_node>, true, true},
    BackEnd{"two_a_node", Progress::caller, make_nodes<two_a_node>, true, true},
    BackEnd{"all_but_one", Progress::thread, make_nodes<all_but_one>, true, true});
inline const auto kThreadedBackEnds = testing::Values(
    BackEnd{"local", Progress::thread, make_local}, BackEnd{"shm", Progress::thread, make_shm},
    BackEnd{"one_a_node", Progress::thread, make_nodes<one_a_node>, true, true},
    BackEnd{"two_a_node", Progress::thread, make_nodes<two_a_node>, true, true});
inline std::string name_of_back_end(const testing::TestParamInfo<BackEnd>& info) {
  return info.param.name;
}

class OnEveryBackEnd : public testing::TestWithParam<BackEnd> {
 protected:
  static constexpr Bytes kSlot{4096};  // small, so that messages are cut into pieces
  Group make(int size, Duration timeout = std::chrono::seconds(20)) {
    return GetParam().make(size, kSlot, timeout, GetParam().progress);
  }
};

}  // namespace troupe::collective
