/// A map for few entries, kept in a sorted vector. Loops of the simulator iterate over one piece
/// of memory, and an entry costs no allocation. References do not outlive a change.
///
///     FlatMap<std::uint64_t, Time> armed;
///     armed.try_emplace(id, at);
///     for (const auto& [id, at] : armed) ...;
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::sim {

template <class Key, class Value>
class FlatMap {
  using Entries = std::vector<std::pair<Key, Value>>;

 public:
  using iterator = typename Entries::iterator;
  using const_iterator = typename Entries::const_iterator;

  /// Returns the entry of this key and whether it was inserted.
  template <class... Args>
  std::pair<iterator, bool> try_emplace(Key key, Args&&... args) {
    iterator at = not_before(key);
    if (at != end() && at->first == key) return {at, false};
    at = entries_.emplace(at, std::piecewise_construct, std::forward_as_tuple(key),
                          std::forward_as_tuple(std::forward<Args>(args)...));
    return {at, true};
  }
  Value& operator[](Key key) { return try_emplace(key).first->second; }
  iterator find(Key key) {
    const iterator at = not_before(key);
    return at != end() && at->first == key ? at : end();
  }
  void erase(iterator at) { entries_.erase(at); }
  void erase(Key key) {
    if (const iterator at = find(key); at != end()) erase(at);
  }
  void clear() noexcept { entries_.clear(); }

  iterator begin() noexcept { return entries_.begin(); }
  iterator end() noexcept { return entries_.end(); }
  const_iterator begin() const noexcept { return entries_.begin(); }
  const_iterator end() const noexcept { return entries_.end(); }
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  /// Returns the first entry whose key is not below `key`. New keys are mostly the highest, so
  /// the end is compared first.
  iterator not_before(Key key) {
    if (entries_.empty() || entries_.back().first < key) return end();
    return std::lower_bound(begin(), end(), key,
                            [](const auto& entry, Key wanted) { return entry.first < wanted; });
  }
  Entries entries_;
};

}  // namespace troupe::sim
