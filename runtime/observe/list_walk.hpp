/// A walk over an intrusive list that changes between its steps: the owner of the list walks some
/// elements, unlocks it, and goes on later.
///
///     walk.begin(first, last);
///     while (!walk.done()) walk.step(4096, [&](const Task& task) { look(task); });   // under a lock
///     walk.leaves(task);                             // before an element leaves the list
///
/// It visits each element that is in the list throughout exactly once, and no element that was
/// added behind `last` or before its position.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::observe {

/// Node has the pointers `previous` and `next`. Not thread-safe: a lock guards list and walk.
template <class Node>
class ListWalk {
 public:
  /// Begins at `first` and ends behind `last`. Both are null for an empty list.
  void begin(Node* first, Node* last) noexcept {
    at_ = first;
    last_ = last;
  }
  bool done() const noexcept { return at_ == nullptr; }
  void stop() noexcept { at_ = nullptr; }
  /// Visits at most `most` elements. visit() must not change the list.
  template <class Visit>
  void step(std::size_t most, Visit visit) {
    for (; most > 0 && at_ != nullptr; --most) {
      Node* const node = at_;
      at_ = node == last_ ? nullptr : node->next;
      fetch_ahead(node, at_);
      visit(*node);
    }
  }
  /// Moves the walk off an element that is about to leave the list.
  void leaves(const Node& node) noexcept {
    if (at_ == nullptr) return;
    if (&node == last_) {
      if (at_ == last_)
        at_ = nullptr;
      else
        last_ = node.previous;
    } else if (&node == at_) {
      at_ = node.next;
    }
  }

 private:
  /// Fetches what is several steps ahead into the caches: nodes that were made one after the other
  /// lie at equal distances. Elsewhere it fetches what nobody needs, and does no harm.
  static void fetch_ahead(const Node* node, const Node* next) noexcept {
    constexpr std::uintptr_t kSteps = 8, kLine = 64;
    const auto from = reinterpret_cast<std::uintptr_t>(node);
    const auto to = reinterpret_cast<std::uintptr_t>(next);
    const std::uintptr_t ahead = to + kSteps * (to - from);
    for (std::uintptr_t at = 0; at < sizeof(Node); at += kLine)
      __builtin_prefetch(reinterpret_cast<const void*>(ahead + at));
  }

  Node* at_ = nullptr;    // the element to visit next; null: the walk has ended
  Node* last_ = nullptr;  // the last element to visit
};

}  // namespace troupe::observe
