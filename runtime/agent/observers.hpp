/// Answers to observers and drivers about this node: its memory, its rows of lists, logs, stacks,
/// and why something waits. Stops a job for them. Passes questions for control and other nodes on.
///
///     observers.on_inquire(process, message, payload);       // → Answer, now or later
///     observers.on_peer_inquire(node, message);              // → PeerAnswer
///     observers.stacks().serve(now);  observers.rows().on_timer(now);
///
/// Invariants: OBSERVER-1 Each question is answered: at once, by a part that answers later, or with
/// an error. OBSERVER-2 Rows, stacks, memory and stops of jobs are for observers; a driver may ask
/// for the log of its own job. OBSERVER-3 Only a node that the cluster has is asked. OBSERVER-4 Of
/// control each kind of process asks only what Authority::may_ask() allows.
#pragma once

#include "troupe/runtime/agent/cluster_link.hpp"
#include "troupe/runtime/agent/extents.hpp"
#include "troupe/runtime/agent/inquiries.hpp"
#include "troupe/runtime/agent/job_stops.hpp"
#include "troupe/runtime/agent/jobs.hpp"
#include "troupe/runtime/agent/memory_watch.hpp"
#include "troupe/runtime/agent/node_events.hpp"
#include "troupe/runtime/agent/node_logs.hpp"
#include "troupe/runtime/agent/observe_questions.hpp"
#include "troupe/runtime/agent/processes.hpp"
#include "troupe/runtime/agent/stack_asks.hpp"
#include "troupe/runtime/agent/workers.hpp"
#include "troupe/runtime/observe/answer_bytes.hpp"
#include "troupe/runtime/wire/memory.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

class Observers final : public NodeLogs::Out,
                        private StackAsks::Out,
                        private ObserveQuestions::Out {
 public:
  /// The way to control.
  class Control {
   public:
    virtual ~Control() = default;
    /// Returns false on a private node, where nothing may be asked.
    virtual bool has_control() const = 0;
    /// Returns whether control has answered within the last seconds.
    virtual bool hears_control() const = 0;
    virtual void say_to_control(const control::ToControl& message) = 0;
  };
  /// The parts below this one. `node`: its name. `logs`: null when the node keeps none.
  struct Below {
    NodeId self;
    const std::string& node;
    const AgentOptions& options;
    objectstore::Host& host;
    Processes& processes;
    const Workers& workers;
    Jobs& jobs;
    JobStops& job_stops;
    NodeEvents& events;
    const scheduling::LeaseTable& leases;
    ReferenceTable& references;
    const RemoteTable& remote;
    const ActorHost& actors;
    const Proxies& proxies;
    const Extents& extents;
    const FolderCopies& copies;
    MemoryWatch& memory;
    const ClusterLink& cluster;
    Inquiries& inquiries;
    const std::unique_ptr<NodeLogs>& logs;
    Outgoing& out;
    Control& control;
  };
  explicit Observers(const Below& below) : below_(below) {}

  // --- questions
  void on_inquire(Process& from, const wire::Inquire& message, BlobView payload);
  /// Answers another agent, which asks for one of its observers or drivers.
  void on_peer_inquire(NodeId from, const wire::PeerInquire& message);
  void on_explain(Process& from, const wire::Explain& message);
  /// Returns the report of this node's memory. O(objects of the node).
  wire::MemoryReport memory_report() const;

  // --- ends
  /// Ends the questions of a process, and what it was asked.
  void process_died(ProcessIndex process, Time now);
  /// Ends the questions of a node that is gone, what it was asked, and what it is owed.
  void node_died(NodeId node, const Error& why, Time now);

  // --- the parts that answer later
  ObserveQuestions& rows() noexcept { return rows_; }
  StackAsks& stacks() noexcept { return stacks_; }
  Time next_deadline() const;

  // --- NodeLogs::Out
  void answer_logs(const Asker& asker, const wire::LogBatch& batch) override;
  bool may_write(JobId job) override;
  std::string name_of(ProcessIndex worker) override { return below_.workers.pages().name(worker); }

 private:
  // StackAsks::Out
  void answer_stacks(const Asker& asker, const std::string& text) override {
    answer_text(asker, text);
  }
  // ObserveQuestions::Out (observers_rows.cpp)
  std::string node_name() override;
  std::vector<ObserveQuestions::ProcessSource> processes() override;
  std::vector<ObserveQuestions::NodeSource> other_nodes() override;
  void ask_process(ProcessIndex process, const wire::AskRows& question) override;
  void ask_node(NodeId node, const wire::PeerInquire& question) override;
  bool add_own(const observe::Query& query, observe::Selection& selection,
               ObserveQuestions::Place& place) override;
  void answer(const Asker& asker, Blob bytes) override {
    below_.inquiries.answer(asker, std::move(bytes));
  }
  void refuse(const Asker& asker, const Error& why) override {
    below_.inquiries.refuse(asker, why);
  }
  std::string name_of(const Process& process) const;
  observe::Surroundings surroundings_of(const Process& process) const;
  bool add_processes(observe::Selection& selection, ObserveQuestions::Place& place) const;
  void add_waits(observe::Selection& selection) const;
  void add_requests(ProcessIndex owner, const std::string& name,
                    observe::Selection& selection) const;
  void add_passed_on(const Process& process, observe::Selection& selection) const;
  std::string name_of(NodeId id) const;

  // memory (observers.cpp)
  wire::MemoryUser user_of(const Process& process) const;
  wire::MemoryHolder holder(ProcessIndex index, std::int64_t refs, Time now) const;
  void describe_place(const wire::Location& location, wire::MemoryObject& row, Time now) const;

  // questions (observers.cpp)
  void answer_text(const Asker& asker, const std::string& text);
  bool is_observer(Process& from, const wire::Inquire& message, const char* said);
  void on_inquire_memory(Process& from, const wire::Inquire& message);
  void on_inquire_logs(Process& from, const wire::Inquire& message);
  void on_inquire_rows(Process& from, const wire::Inquire& message);
  void on_inquire_stacks(Process& from, const wire::Inquire& message);
  void ask_logs(const Asker& asker, const wire::LogQuestion& question);
  void ask_stacks(const Asker& asker, const wire::StackQuestion& question);
  void on_inquire_stop(Process& from, const wire::Inquire& message);
  void stop_job(const Asker& asker, const wire::StopQuestion& question);
  void pass_on(Process& from, const wire::Inquire& message, wire::PeerInquire question);

  const Below below_;
  StackAsks stacks_{*this};
  ObserveQuestions rows_{*this};
};

}  // namespace troupe::agent
