#include "train/nodes_sum.hpp"

#include "tools.hpp"
#include "troupe/actors/collective/nodes/nodes.hpp"
#include "troupe/actors/collective/work.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace troupe::bench {

NodesSum::NodesSum(std::size_t bytes)
    : Exchange([=](int side, int stream) -> std::function<void()> {
        const std::shared_ptr<collective::Communicator> group = collective::join_nodes_group(
            {.nodes = {"a", "b"}, .rank = side, .rendezvous = "bench"}, met_door(side, stream));
        auto slab = std::make_shared<std::vector<float>>(bytes / sizeof(float));
        return [group, slab] {
          std::fill(slab->begin(), slab->end(), 1.0f);
          group->all_reduce(std::span(*slab)).wait();
          expect(slab->front() == 2 && slab->back() == 2, "the sum of both slabs");
        };
      }) {}

}  // namespace troupe::bench
