#include "train/nodes_sum.hpp"

#include "tools.hpp"
#include "troupe/actors/collective/nodes/nodes.hpp"
#include "troupe/actors/collective/work.hpp"

#include <span>
#include <vector>

namespace troupe::bench {

NodesSum::NodesSum(std::size_t bytes)
    : Exchange([=](int side, int stream) -> std::function<void()> {
        const std::shared_ptr<collective::Communicator> group = collective::join_nodes_group(
            {.nodes = {"a", "b"}, .rank = side, .rendezvous = "bench"}, met_door(side, stream));
        auto slab = std::make_shared<std::vector<float>>(bytes / sizeof(float), 1.0f);
        // Sums of a sum, since a fresh slab would cost as much as the addition.
        return [group, slab, expected = 1.0f]() mutable {
          group->all_reduce(std::span(*slab)).wait();
          expected *= 2;
          expect(slab->front() == expected && slab->back() == expected, "the sum of both slabs");
        };
      }) {}

}  // namespace troupe::bench
