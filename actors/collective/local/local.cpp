#include "troupe/actors/collective/local/local.hpp"

#include "troupe/actors/collective/internal/rank.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::collective {

std::vector<std::unique_ptr<Communicator>> local_group(int size, const LocalOptions& options) {
  if (size < 1 || size > internal::kMaxSize)
    throw InvalidArgument(Code::invalid_argument, "a local group has 1 to 1024 ranks");
  if (options.splits < 0 || options.splits > static_cast<int>(internal::kMaxSplits))
    throw InvalidArgument(Code::invalid_argument, "a local group has 0 to 64 splits");
  const std::uint64_t slot = std::clamp(options.slot.count, internal::kMinSlot, internal::kMaxSlot);
  const auto arena = internal::Arena::anonymous(
      {size, internal::Arena::round_up_to_page(slot), static_cast<std::uint32_t>(options.splits)});
  internal::Seats seats;
  seats.members.resize(static_cast<std::size_t>(size));
  std::iota(seats.members.begin(), seats.members.end(), 0);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<internal::ArenaCommunicator>(
        arena, seats, rank,
        internal::ArenaCommunicator::How{options.timeout, false, options.progress, options.link}));
  return ranks;
}

}  // namespace troupe::collective
