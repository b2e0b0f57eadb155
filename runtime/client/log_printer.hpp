/// Brings the lines of a job's workers to its driver, and prints them. It asks each node of the
/// cluster for what follows an offset; the node answers when it has lines. At most one answer of a
/// node is under way and one unprinted, so a driver that cannot print stops no worker.
///
///     LogPrinter printer(asker, job, LogPrinter::Mode::prefix);
///     printer.on_answer(answer, payload);  printer.on_nodes(nodes);   // as they arrive
///     printer.finish(lost);                // prints what is left at the job's end
///
/// A line is "(mix pid=8185 node=node-0) TEXT", on standard output or error as the worker wrote it.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/log_filter.hpp"
#include "troupe/runtime/wire/log_batch.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::client {

class LogPrinter {
 public:
  enum class Mode { prefix, plain, off };
  /// Reads TROUPE_LOGS. Throws InvalidArgument for a value that is none of prefix, plain, off.
  static Mode mode_of(const Environment& environment);
  /// How long the end of a job may wait for lines.
  static constexpr Duration kLastLines = std::chrono::seconds(2);

  /// Sends to the node's agent. Any thread; does not block for long.
  using Send = std::function<void(const wire::NodeMessage&)>;
  LogPrinter(Send send, JobId job, Mode mode);
  /// Precondition: no on_answer() or on_nodes() runs or follows.
  ~LogPrinter();
  LogPrinter(const LogPrinter&) = delete;
  LogPrinter& operator=(const LogPrinter&) = delete;

  // By the thread that reads the agent's messages:
  void on_answer(const wire::Answer& answer, BlobView payload);
  void on_nodes(const wire::Nodes& nodes);
  /// The agent is lost, and answers no more: finish() waits for no line that has not come.
  void on_loss();

  /// Passes lines to `take` from now on, instead of printing them; an empty one prints again. It
  /// runs on the printer's thread, one call at a time, and must not wait for the job's end. Waits
  /// until the function before it does not run any more, unless that function calls this. A
  /// LogFilter joins the filters instead.
  void on_log(detail::OnLog take);
  /// Takes the lines that the nodes have until their part of the job ends, until kLastLines have
  /// passed. Nothing is asked of an agent that is `lost`.
  void finish(bool lost);

 private:
  /// What is known of one node.
  struct Feed {
    std::string name;
    std::uint64_t after = 0;
    std::uint64_t request = 0;  ///< 0: nothing is asked
    std::string bytes;          ///< of the answer, so far
    bool asked_at_end = false;  ///< that question is answered at the end of the job
    Time asked{};               ///< when it was asked
    bool is_whole = false;      ///< to be printed
    bool is_over = false;       ///< nothing follows
    bool begins_again = false;  ///< the node had forgotten the job; to be told with the next lines
    Time again{};               ///< not asked before
  };
  void run();
  void step(std::unique_lock<std::mutex>& lock);
  bool ask(Time now, std::vector<wire::NodeMessage>& messages);
  bool is_done() const;
  void print(const std::string& node, const wire::LogBatch& batch, const std::string& missing);
  void print(LogLine& line);
  void set_filter(const LogFilter& filter);
  bool pass(LogLine& line);
  void flush();

  const Send send_;
  const JobId job_;
  const Mode mode_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<NodeId, Feed> feeds_;
  std::uint64_t next_request_;
  Time next_list_{};
  bool finishing_ = false, listed_ = false, lost_ = false;
  bool prints_ = false;  ///< a batch is being printed
  std::atomic<bool> over_{false};
  using Filters = std::vector<LogFilter>;
  std::recursive_mutex taking_;  ///< held while take_ or a filter runs
  std::shared_ptr<const detail::OnLog> take_;
  std::shared_ptr<const Filters> filters_;
  std::atomic<bool> takes_{false};  ///< whether take_ or filters_ is set
  std::string chunk_;               ///< lines of `chunk_is_error_` that are not written
  bool chunk_is_error_ = false;
  std::size_t most_of_chunk_ = 0;
  SignalMaskedThread thread_;
};

}  // namespace troupe::client
