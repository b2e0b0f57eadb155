#include "troupe/actors/collective/local.hpp"

#include "troupe/actors/collective/internal/arena.hpp"

#include <algorithm>

namespace troupe::collective {

std::vector<std::unique_ptr<Communicator>> local_group(int size, const LocalOptions& options) {
  if (size < 1 || size > internal::kMaxSize)
    throw InvalidArgument(Code::invalid_argument, "a local group has 1 to 1024 ranks");
  const std::uint64_t slot = std::clamp(options.slot.count, internal::kMinSlot, internal::kMaxSlot);
  const auto arena = internal::Arena::anonymous(size, slot);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(
        std::make_unique<internal::ArenaCommunicator>(arena, rank, options.timeout, false));
  return ranks;
}

}  // namespace troupe::collective
