#include "troupe/train/engine/internal/gathers.hpp"

namespace troupe::train::internal {

void Gathers::begin(Walk walk, int passes) {
  if (!is_needed()) return;
  visits_ = Visits(*units_, walk, passes);
  asked_ = now_ = 0;
  ask_ahead();
}

void Gathers::ask_ahead() {
  if (asked_ == visits_.size()) return;
  for (const int unit : (*units_)[static_cast<std::size_t>(visits_[asked_])]) store_->gather(unit);
  ++asked_;
}

void Gathers::enter(int layer) {
  if (!is_needed() || (*units_)[static_cast<std::size_t>(layer)].empty()) return;
  TROUPE_ASSERT(now_ < visits_.size() && visits_[now_] == layer, "a visit that was not announced");
  ++now_;
  ask_ahead();
}

void Gathers::leave(int layer) {
  if (!is_needed()) return;
  for (const int unit : (*units_)[static_cast<std::size_t>(layer)]) store_->release(unit);
}

}  // namespace troupe::train::internal
