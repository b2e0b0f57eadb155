#include "troupe/train/checkpoint/folder/exchange.hpp"

#include "troupe/actors/collective/work.hpp"
#include "troupe/train/params/shards.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace troupe::train {
namespace {

/// One rank's part in an exchange.
class Exchange {
 public:
  Exchange(const StagedState& staged, int rank, collective::Communicator* group)
      : staged_(&staged), first_(staged.plan->first), me_(rank - first_), group_(group) {}

  void send(const StagedTensor& tensor) {
    for (const StagedPiece& piece : tensor.pieces)
      if (piece.from == me_) group_->send(values(piece), first_ + tensor.writer).wait();
  }

  /// Returns the whole tensor. It lies in the staged values or in memory of this object.
  std::span<const float> receive(const StagedTensor& tensor) {
    const auto size = static_cast<std::size_t>(tensor.place.global.count());
    if (tensor.pieces.size() == 1 && tensor.pieces.front().from == me_ &&
        tensor.place.local == tensor.place.global)
      return values(tensor.pieces.front());
    whole_.assign(size, 0.0f);
    shard_.assign(static_cast<std::size_t>(tensor.place.local.count()), 0.0f);
    for (std::size_t p = 0; p < tensor.pieces.size(); ++p) {
      const StagedPiece& piece = tensor.pieces[p];
      const std::span<float> to = std::span(shard_).subspan(
          static_cast<std::size_t>(piece.range.first), static_cast<std::size_t>(piece.range.count));
      if (piece.from == me_) {
        const std::span<const float> mine = values(piece);
        std::memcpy(to.data(), mine.data(), mine.size_bytes());
      } else {
        group_->receive(to, first_ + piece.from).wait();
      }
      const bool last = p + 1 == tensor.pieces.size() || tensor.pieces[p + 1].shard != piece.shard;
      if (last) add_shard(tensor.place, piece.shard, shard_, whole_);
    }
    return whole_;
  }

  bool writes(const StagedTensor& tensor) const noexcept { return tensor.writer == me_; }

 private:
  std::span<const float> values(const StagedPiece& piece) const {
    return std::span(staged_->values)
        .subspan(static_cast<std::size_t>(piece.at), static_cast<std::size_t>(piece.range.count));
  }

  const StagedState* staged_;
  int first_, me_;
  collective::Communicator* group_;
  std::vector<float> whole_, shard_;
};

}  // namespace

// All ranks go through the tensors and their pieces in one order, so blocking sends cannot wait
// for each other in a circle.
void exchange(const StagedState& staged, int rank, collective::Communicator* group,
              const TensorSink& sink) {
  Exchange mine(staged, rank, group);
  for (const StagedTensor& tensor : staged.plan->tensors) {
    if (mine.writes(tensor))
      sink(tensor, std::as_bytes(mine.receive(tensor)));
    else
      mine.send(tensor);
  }
}

}  // namespace troupe::train
