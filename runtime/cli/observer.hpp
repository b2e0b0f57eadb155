/// The connection by which `status`, `list` and `memory` ask a cluster; the process runs nothing
/// for it. It uses the local door of an agent, which asks control and other agents.
///
///     Observer observer = Observer::connect(file.socket_name).value();
///     control::ListReply reply = observer.list(control::ListRequest::What::actors).value();
#pragma once

#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/wire/log_batch.hpp"
#include "troupe/runtime/wire/memory.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::cli {

/// Not thread-safe. Every call waits at most `limit`.
class Observer {
 public:
  /// Errors: Unavailable (nobody answers, another protocol), TimedOut.
  static Result<Observer> connect(const std::string& socket_name,
                                  Duration limit = std::chrono::seconds(5));
  Result<control::ListReply> list(control::ListRequest::What what,
                                  Duration limit = std::chrono::seconds(5));
  /// Removes an object's name. Returns the entry that had it; nullopt: there was none.
  Result<std::optional<control::ObjectName>> forget(const std::string& name,
                                                    Duration limit = std::chrono::seconds(5));
  /// Returns a piece of a job's log on the node.
  Result<wire::LogBatch> logs(NodeId node, const wire::LogQuestion& question, Duration limit);
  /// Returns a text with the stacks of processes of the node.
  Result<std::string> stacks(NodeId node, const wire::StackQuestion& question,
                             Duration limit = std::chrono::seconds(20));
  /// Returns what the memory of a node is used for. Zero: the node of this door. Error: Unavailable
  /// when that node cannot be reached.
  Result<wire::MemoryReport> memory(NodeId node, Duration limit = std::chrono::seconds(5));
  /// What nodes, and processes, know of objects.
  struct Objects {
    std::vector<Result<wire::MemoryReport>> reports;  ///< in the order of the nodes
    Result<observe::Answer> own;                      ///< rows of objects that processes alone know
  };
  /// Asks these nodes and all processes at once. Who has not answered within the limit: TimedOut.
  Objects objects(const std::vector<NodeId>& nodes, const observe::Question& question,
                  Duration limit);
  /// Returns rows of all nodes. Rows that agents and processes know alone: tasks, functions,
  /// processes, reasons, waits.
  Result<observe::Answer> rows(const observe::Question& question, Duration limit);
  /// Drains a node, which leaves within this time. Returns when control has recorded it.
  Result<void> drain(NodeId node, Duration within, Duration limit = std::chrono::seconds(5));
  /// Tells the node of a job's driver to stop the job. Returns when the driver was told.
  Result<void> stop_job(NodeId node, const wire::StopQuestion& question,
                        Duration limit = std::chrono::seconds(5));
  /// The node that is asked.
  NodeId node() const noexcept { return node_; }
  const std::string& node_name() const noexcept { return node_name_; }
  /// Returns whether the node's agent has ended the connection. Every later call fails then.
  bool is_lost() const noexcept { return is_lost_; }

 private:
  Observer() = default;
  Result<wire::Decoded<wire::NodeMessage>> next(Time until);
  /// Marks the connection as lost and returns the error.
  Error lose(Error why);
  /// Sends the question with the next number.
  Result<void> send(wire::Inquire question, BlobView payload);
  Result<Blob> ask(const wire::Inquire& question, BlobView payload, Time until);
  std::vector<Result<Blob>> answers(std::size_t questions, Time until);
  Result<control::FromControl> ask_control(const control::ToControl& question, Time until);
  os::LocalSocket socket_;
  std::unique_ptr<std::array<std::byte, os::kMaxPacket>> packet_;
  NodeId node_;
  std::string node_name_;
  std::uint64_t request_ = 0;
  bool is_lost_ = false;
};

}  // namespace troupe::cli
