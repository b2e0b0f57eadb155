// The nodes of GangWorld, and what happens to them.
#include "tests/simulation/gang_world.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = WorkerEvent::Kind;

}  // namespace

std::vector<NodeInfo> GangWorld::infos(bool with_lag) const {
  std::vector<NodeInfo> infos;
  for (const Host& host : hosts_) {
    if (!host.up && !host.heard) continue;
    NodeInfo info = host.info;
    const auto lag = std::count_if(host.lag.begin(), host.lag.end(),
                                   [this](const Host::Lag& l) { return l.until > now_; });
    const int taken = with_lag ? static_cast<int>(lag) : 0;
    info.cpus_free = std::max(0, free(host) - taken);
    infos.push_back(std::move(info));
  }
  return infos;
}

void GangWorld::strike() {
  if (now_ > Time{} + seconds(1) + rules_.faults) return;
  const std::size_t index = random_.below(hosts_.size());
  Host& host = hosts_[index];
  switch (random_.below(8)) {
    case 0:
    case 1:  // a rank
      if (core_ && core_->gang() != 0) {
        Played& gang = gangs_.at(core_->gang());
        hurt(gang, static_cast<int>(random_.below(gang.ranks.size())),
             some(milliseconds(1), milliseconds(50)));
      }
      break;
    case 2:
      if (index != 0) kill_host(index);
      break;
    case 3:  // silent, then dead
      if (index == 0 || !host.up || host.info.suspect) break;
      host.info.suspect = true;
      host.info.alive = false;
      after(seconds(9), [this, index] {
        if (hosts_[index].info.suspect) kill_host(index);
      });
      break;
    case 4:
      if (index == 0 || !host.up) break;
      host.info.draining = true;
      after(some(seconds(1), seconds(30)), [this, index] {
        if (hosts_[index].info.draining) kill_host(index);
      });
      break;
    case 5: {  // other work
      const int takes = std::min(free(host), static_cast<int>(1 + random_.below(2)));
      if (takes <= 0 || !host.up) break;
      host.foreign += takes;
      const int life = host.life;
      after(some(seconds(1), seconds(20)), [this, index, takes, life] {
        if (hosts_[index].life != life) return;
        hosts_[index].foreign -= takes;
        serve(index);
      });
      break;
    }
    case 6:
      if (rules_.folder && chance(0.5)) kill_driver();
      break;
    default: break;
  }
  after(some(milliseconds(200), seconds(8)), [this] { strike(); });
}

void GangWorld::kill_host(std::size_t index) {
  Host& host = hosts_[index];
  if (!host.up) return;
  host.up = host.heard = false;
  host.lost = now_;
  ++host.life;
  host.foreign = host.held = 0;
  host.lag.clear();
  host.waiting.clear();
  host.info.suspect = host.info.draining = host.told_draining = false;
  host.info.alive = true;
  for (auto& [number, gang] : gangs_)
    for (std::size_t rank = 0; rank < gang.ranks.size(); ++rank)
      if (gang.ranks[rank].host == index && !gang.over)
        hurt(gang, static_cast<int>(rank), some(milliseconds(50), seconds(1)));
  after(some(seconds(1), seconds(20)), [this, index] { revive(index); });
}

void GangWorld::revive(std::size_t index) {
  Host& host = hosts_[index];
  host.up = host.heard = true;
  host.info.id = NodeId{index + 1, static_cast<std::uint64_t>(host.life) + 1};  // a new agent
}

/// Ends all faults.
void GangWorld::heal() {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    host.info.draining = host.told_draining = host.info.suspect = false;
    host.info.alive = true;
    host.foreign = 0;
    revive(i);
    serve(i);
  }
  rules_.bad_host = false;
}

/// Gives free CPUs to the ranks that wait for them.
void GangWorld::serve(std::size_t index) {
  Host& host = hosts_[index];
  while (!host.waiting.empty() && free(host) > 0 && host.up) {
    const auto [number, rank] = host.waiting.front();
    host.waiting.erase(host.waiting.begin());
    ++host.held;
    Played& gang = gangs_.at(number);
    gang.ranks[static_cast<std::size_t>(rank)].placed = true;
    then(some(milliseconds(5), milliseconds(100)), [this, number = number, rank = rank] {
      Played& to = gangs_.at(number);
      const Rank& mine = to.ranks[static_cast<std::size_t>(rank)];
      if (mine.dead) return;
      WorkerEvent ready;
      ready.kind = Kind::ready;
      ready.door = "door";
      tell(to, rank, std::move(ready));
    });
  }
}

}  // namespace troupe::train::internal
