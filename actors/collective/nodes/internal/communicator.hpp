/// NodesCommunicator: one rank's end of a group over nodes. Its segment, the ranks on its node, is
/// an arena group; the segment's head exchanges with other nodes over the line. A group that lies
/// on one node is its segment.
#pragma once

#include "troupe/actors/collective/nodes/internal/line.hpp"
#include "troupe/actors/collective/nodes/nodes.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace troupe::collective::nodes {

class NodesCommunicator final : public internal::Coordinator,
                                private internal::Watcher,
                                private Post {
 public:
  struct How {
    Duration timeout{};
    Progress progress = Progress::caller;
    std::uint32_t lane = 0;  ///< of the arena
  };
  /// Throws InvalidArgument when another one has joined as this rank.
  NodesCommunicator(std::shared_ptr<Gang> gang, Layout layout, int rank, const How& how);
  ~NodesCommunicator() override;
  void abort(std::string_view reason) noexcept override;
  bool is_over() const noexcept override { return inner_.is_over(); }
  bool was_given_up() const noexcept override { return inner_.was_given_up(); }
  std::vector<RankProgress> progress() const override;
  internal::CallLog* call_log() noexcept override { return inner_.call_log(); }
  void run(internal::Operation& operation) override;
  std::unique_ptr<Communicator> join_split(const internal::Operation& done,
                                           Progress progress) override;
  void agree(const internal::Operation& operation) override;
  void note_done(OperationKind kind, std::uint64_t sequence) noexcept override {
    inner_.note_done(kind, sequence);
  }
  std::uint64_t sequence() const noexcept override { return inner_.sequence(); }
  void count_anew() noexcept override;
  void end(Code code, const std::string& why) noexcept override;
  bool check_ranks() override;
  Error error_of(OperationKind kind, std::uint64_t sequence) noexcept override {
    return inner_.error_of(kind, sequence);
  }
  std::string name_of_rank(int rank) const override { return wires_.name_of(rank); }
  std::string late_words(Time limit, const internal::Operation& operation) const override {
    return inner_.late_words(limit, operation);
  }
  [[noreturn]] void fail(Code code, const std::string& why) override { inner_.fail(code, why); }

 private:
  /// Does a part of an operation alone; an error that it throws reaches the other nodes.
  template <class F>
  void alone(const F& does);
  // operations.cpp
  void carry_out(internal::Operation& operation);
  void all_reduce(const internal::Operation& operation);
  void barrier();
  void reduce_scatter(const internal::Operation& operation);
  void gather(const std::byte* in, std::byte* out, std::uint64_t bytes);
  std::vector<Flow> flows_of_gather(const std::vector<Flow::Part>& blocks) const;
  void broadcast(const internal::Operation& operation);
  void split(internal::Operation& operation);
  bool is_alone() const noexcept { return inner_.size() == 1; }
  bool is_head() const noexcept { return line_.has_value(); }
  std::uint64_t slot_bytes() const noexcept { return gang_->arena()->slot_bytes(); }

  // transfers.cpp
  class Stream;
  void move(const internal::Operation& operation,
            const std::vector<Transfers::One>& messages) override;
  Side& pair(int rank);

  void say_last_words() noexcept;

  // internal::Watcher and Post
  void idle(int rank) noexcept override;
  std::vector<RankProgress> whole_progress() const override { return progress(); }
  void tell_end() noexcept override;
  void serve(int missing) noexcept override;

  std::shared_ptr<Gang> gang_;
  Layout layout_;
  int segment_;
  internal::ArenaCommunicator inner_;
  Wires wires_;
  std::optional<Line> line_;  // of a head, in a group over several nodes
  std::map<int, Side*> pairs_;
  std::mutex busy_;  // guards what is above, but inner_, and what is below
  Time begun_{};     // of the operation
  std::vector<std::byte> scratch_;
  LinkName split_name_;  // of the split that was made last
};

/// Joins a group as join_nodes_group(), on the memory that the ranks of this node share.
std::unique_ptr<Communicator> join(const NodesOptions& options, std::shared_ptr<LinkSource> links,
                                   std::shared_ptr<internal::Arena> arena);

}  // namespace troupe::collective::nodes
