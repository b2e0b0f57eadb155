#include "troupe/actors/collective/nodes/internal/gang.hpp"

#include <algorithm>

namespace troupe::collective::nodes {

Gang::Gang(std::shared_ptr<LinkSource> links, std::shared_ptr<internal::Arena> arena,
           std::vector<int> node_of, int rank)
    : links_(std::move(links)),
      arena_(std::move(arena)),
      node_of_(std::move(node_of)),
      rank_(rank),
      first_(static_cast<int>(
          std::find(node_of_.begin(), node_of_.end(), node_of_[static_cast<std::size_t>(rank)]) -
          node_of_.begin())) {}

void Gang::add(Post& post) {
  const std::lock_guard lock(mutex_);
  posts_.push_back(&post);
}

void Gang::remove(Post& post) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(posts_, &post);
}

void Gang::tell_end(const Post* but) noexcept {
  const std::lock_guard lock(mutex_);
  for (Post* post : posts_)
    if (post != but) post->tell_end();
}

void Gang::serve(const Post* but, int missing) noexcept {
  const std::lock_guard lock(mutex_);
  for (Post* post : posts_)
    if (post != but) post->serve(missing);
}

}  // namespace troupe::collective::nodes
