// Tests groups over nodes between real processes: ranks that are killed or stopped, near and far.
#include "tests/actors/children.hpp"
#include "tests/actors/nodes_group.hpp"
#include "tests/eventually.hpp"
#include "tests/leeway.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <numeric>

namespace troupe::collective {
namespace {

using namespace std::chrono_literals;

constexpr int kMost = 4;
struct Shared {
  std::atomic<int> rounds;
  char error[kMost][2048];
};

/// Processes of a group with this many ranks on each node, which make sums until an error comes.
class Processes {
 public:
  Processes(const std::vector<int>& ranks_on, Duration timeout)
      : size_(std::accumulate(ranks_on.begin(), ranks_on.end(), 0)),
        shared_(static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    const auto links = std::make_shared<PlainLinks>();
    links->make_for_processes(size_);
    NodesOptions options;
    options.timeout = timeout;
    for (std::size_t node = 0; node < ranks_on.size(); ++node)
      options.nodes.insert(options.nodes.end(), static_cast<std::size_t>(ranks_on[node]),
                           "node-" + std::to_string(node));
    for (const int ranks : ranks_on) {
      const Fd memory = create_shm_group({.size = ranks, .slot = {1 << 16}});
      for (int rank = 0; rank < ranks; ++rank) {
        options.rank = static_cast<int>(children_.size());
        const pid_t pid = ::fork();
        if (pid == 0) ::_exit(child(options, *links, memory, rank));
        children_.emplace_back(pid);
      }
    }
    links->keep_only(-1);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() { ::munmap(shared_, sizeof(Shared)); }

  bool work() const {
    return eventually([this] { return shared_->rounds.load() >= 20; });
  }
  void signal(int rank, int signal) {
    ::kill(children_[static_cast<std::size_t>(rank)].pid(), signal);
  }
  /// Returns the exit code of a rank: the number of its error's code.
  int wait(int rank) { return children_[static_cast<std::size_t>(rank)].wait(); }
  std::string error(int rank) const { return shared_->error[rank]; }
  int size() const { return size_; }

 private:
  int child(const NodesOptions& options, PlainLinks& links, const Fd& memory, int rank) {
    links.keep_only(options.rank);
    try {
      const auto c = nodes::join(options, links.source(options.rank),
                                 internal::open_shm_arena(memory, rank, 1));
      std::vector<float> x(5000, 1);
      while (true) {
        c->all_reduce(x, Reduce::max).wait();
        if (options.rank == 0) shared_->rounds.fetch_add(1);
      }
    } catch (const Error& e) {
      std::snprintf(shared_->error[options.rank], sizeof shared_->error[0], "%s",
                    e.message().c_str());
      return static_cast<int>(e.code());
    }
  }

  int size_;
  Shared* shared_;
  std::vector<Child> children_;
};

struct Fault {
  std::vector<int> ranks_on;
  int rank;
};
const std::vector<Fault> kFaults = {{{1, 1, 1}, 0}, {{1, 1, 1}, 2}, {{2, 2}, 2},
                                    {{2, 2}, 3},    {{2, 2}, 0},    {{2, 2}, 1}};

TEST(NodesProcesses, AKilledRankEndsAllOthersSoon) {
  for (const Fault& fault : kFaults) {
    Processes ranks(fault.ranks_on, 60s);
    ASSERT_TRUE(ranks.work()) << "the group does not work";
    const Time killed = steady_now();
    ranks.signal(fault.rank, SIGKILL);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == fault.rank) continue;
      EXPECT_EQ(ranks.wait(rank), static_cast<int>(Code::worker_died)) << ranks.error(rank);
      EXPECT_NE(ranks.error(rank).find(": rank " + std::to_string(fault.rank) + " "),
                std::string::npos)
          << ranks.error(rank);
    }
    EXPECT_LT(steady_now() - killed, kLeeway * 1s);
  }
}

TEST(NodesProcesses, AStoppedRankIsNamedByAllOthersInTime) {
  for (const Fault& fault : kFaults) {
    Processes ranks(fault.ranks_on, 500ms);
    ASSERT_TRUE(ranks.work()) << "the group does not work";
    const Time stopped = steady_now();
    ranks.signal(fault.rank, SIGSTOP);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == fault.rank) continue;
      EXPECT_EQ(ranks.wait(rank), static_cast<int>(Code::timed_out)) << ranks.error(rank);
      EXPECT_NE(ranks.error(rank).find(": rank " + std::to_string(fault.rank) + " did not arrive"),
                std::string::npos)
          << ranks.error(rank);
    }
    EXPECT_LT(steady_now() - stopped, kLeeway * 3500ms);
    ranks.signal(fault.rank, SIGKILL);
  }
}

}  // namespace
}  // namespace troupe::collective
