#include "troupe/runtime/control/hosts_pages.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::control {
namespace {

std::size_t bytes_of(const ActorSpec& spec) {
  std::size_t size = sizeof(HostedActor) + spec.name.size() + spec.name_space.size() +
                     spec.class_name.size() + spec.creation.size();
  for (const auto& [key, value] : spec.demand.labels) size += key.size() + value.size() + 64;
  for (const auto& [name, amount] : spec.demand.need.custom) size += name.size() + 64;
  return size;
}

}  // namespace

HostsPages::State HostsPages::add(NodeHosts& page) {
  if (!page.more && page.page == 0) return State::whole;
  List& list = lists_[page.node];
  NodeHosts& whole = list.so_far;
  if (page.page == 0)
    list = List{NodeHosts{page.node, page.epoch, page.control_epoch, {}, 0, false, page.number}, 0};
  if (page.page != whole.page || page.epoch != whole.epoch ||
      page.number != whole.number) {  // an earlier page was lost
    lists_.erase(page.node);
    return State::open;
  }
  ++whole.page;
  for (const HostedActor& actor : page.actors) list.bytes += bytes_of(actor.spec);
  std::move(page.actors.begin(), page.actors.end(), std::back_inserter(whole.actors));
  if (whole.actors.size() > options_.max_hosted || list.bytes > options_.max_hosted_bytes) {
    lists_.erase(page.node);
    return State::too_long;
  }
  if (page.more) return State::open;
  const NodeId node = page.node;
  page = std::move(whole);
  lists_.erase(node);
  return State::whole;
}

}  // namespace troupe::control
