/// Gang: what the groups of one rank have in common: the world and its nodes, the memory that the
/// rank shares with those of its node, and the links of all groups. So the end of one group reaches
/// all others (COLL-3).
#pragma once

#include "troupe/actors/collective/internal/arena.hpp"
#include "troupe/actors/collective/nodes/link.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::collective::nodes {

/// The links of one group. Each function does nothing while another thread uses them: that thread
/// does the same itself.
class Post {
 public:
  virtual ~Post() = default;
  /// Tells the other ends that the group is over, if it is. Never waits.
  virtual void tell_end() noexcept = 0;
  /// Answers ends that ask for whom this rank waits: `missing`, a rank of the world. Ends the group
  /// when an end says so or has died.
  virtual void serve(int missing) noexcept = 0;
};

class Gang {
 public:
  Gang(std::shared_ptr<LinkSource> links, std::shared_ptr<internal::Arena> arena,
       std::vector<int> node_of, int rank);

  LinkSource& links() noexcept { return *links_; }
  const std::shared_ptr<internal::Arena>& arena() const noexcept { return arena_; }
  /// The number of each world rank's node.
  const std::vector<int>& node_of() const noexcept { return node_of_; }
  int rank() const noexcept { return rank_; }
  /// Returns the world rank that is the arena's rank 0.
  int first_of_node() const noexcept { return first_; }
  /// Returns a number that this rank has not given a group before, from 1.
  std::uint32_t next_lane() noexcept { return ++lanes_; }

  void add(Post& post);
  void remove(Post& post) noexcept;
  /// Call all posts but one. Any thread.
  void tell_end(const Post* but) noexcept;
  void serve(const Post* but, int missing) noexcept;

 private:
  std::shared_ptr<LinkSource> links_;
  std::shared_ptr<internal::Arena> arena_;
  std::vector<int> node_of_;
  int rank_;
  int first_;
  std::atomic<std::uint32_t> lanes_ = 0;
  std::mutex mutex_;  // nobody waits for a group's lock inside
  std::vector<Post*> posts_;
};

}  // namespace troupe::collective::nodes
