// The part of Service that sends ClusterNodes to the agents and answers the lists of `troupe`.
#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/control/service.hpp"

#include <algorithm>

namespace troupe::control {
namespace {

constexpr std::size_t kMaxRows = 4096;
constexpr std::size_t kMaxListBytes = 400 * 1024;  ///< of one answer, estimated
constexpr std::size_t kMaxListedText = 256;
constexpr std::size_t kEndedJobsTold = 64;

void shorten(std::string& text) {
  if (text.size() <= kMaxListedText) return;
  std::size_t end = kMaxListedText - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole UTF-8
  text.resize(end);
  text += "...";
}

/// Drops the last rows until the answer keeps within its bounds. Returns how many it dropped.
template <class Row, class Size>
std::uint32_t fit(std::vector<Row>& rows, Size size) {
  std::size_t count = 0, bytes = 0;
  while (count < std::min(rows.size(), kMaxRows)) {
    bytes += size(rows[count]);
    if (bytes > kMaxListBytes) break;
    ++count;
  }
  const std::size_t left_off = rows.size() - count;
  rows.resize(count);
  return static_cast<std::uint32_t>(left_off);
}

}  // namespace

bool Service::has_listeners() const {
  return !nodes_.listeners(true).empty();
}

void Service::end_cluster(const std::string& why) {
  out_.broadcast(nodes_.listeners(true), ClusterEnds{why});
}

/// Composes the list from durable facts. Its version grows across restarts of control.
ClusterNodes Service::cluster_nodes() {
  return ClusterNodes{++nodes_version_, nodes_.rows(kMaxRows)};
}

void Service::nodes_changed(Time now) {
  if (broadcast_at_) return;
  const auto stretch = static_cast<Duration::rep>(1 + nodes_.all().size() / 64);
  broadcast_at_ = std::max(now, last_broadcast_ + options_.broadcast_interval * stretch);
}

void Service::broadcast_nodes(Time now) {
  broadcast_at_.reset();
  last_broadcast_ = now;
  const std::vector<NodeId> to = nodes_.listeners(false);
  if (!to.empty()) out_.broadcast(to, cluster_nodes());
}

/// Sends ClusterNodes to the newcomer, and at once to the voters. If control falls silent now, the
/// voters must be able to answer the newcomer's AskControl. It would count itself as cut off
/// otherwise.
void Service::introduce(NodeId newcomer) {
  std::vector<NodeId> to{newcomer};
  for (const NodeId voter : members_.roster().voters) {
    const NodeTable::Node* node = nodes_.find(voter);
    if (voter != newcomer && node != nullptr && node->registered) to.push_back(voter);
  }
  out_.broadcast(to, cluster_nodes());
}

/// Sends the node JobEnded of the jobs that ended last, which it may have missed. The messages wait
/// for earlier writes, since the end of a job may not be durable yet.
void Service::tell_ended_jobs(NodeId node, Time now) {
  std::vector<JobRecord> ended;
  for (JobRecord& job : jobs_.list())
    if (job.state != JobState::running) ended.push_back(std::move(job));
  std::sort(ended.begin(), ended.end(), [](const JobRecord& a, const JobRecord& b) {
    return std::make_pair(a.ended_ns, a.id) > std::make_pair(b.ended_ns, b.id);
  });
  if (ended.size() > kEndedJobsTold) ended.resize(kEndedJobsTold);
  for (const JobRecord& job : ended) answer(node, JobEnded{job.id, job.state, job.why}, now);
}

void Service::on(const ListRequest& message, Sender from, Time now) {
  if (message.what == ListRequest::What::nodes) {
    Output<AnswerNodes> output;
    output.after_sync.push_back({from.node, message.request});
    return run(std::move(output), now);
  }
  ListReply reply;
  reply.request = message.request;
  if (message.what == ListRequest::What::actors) list_actors(reply);
  if (message.what == ListRequest::What::jobs) list_jobs(reply);
  if (message.what == ListRequest::What::objects) list_names(reply);
  answer(from.node, std::move(reply), now);
}

void Service::carry_out(const AnswerNodes& event, Time) {
  ListReply reply;
  reply.request = event.request;
  reply.nodes = nodes_.rows(kMaxRows);
  reply.left_off = static_cast<std::uint32_t>(nodes_.all().size() - reply.nodes.size());
  reply.dead_nodes = dead_.list(wall_now());
  out_.send(event.to, reply);
}

void Service::list_actors(ListReply& reply) const {
  std::map<ActorId, const Placing::Waiting*> waiting;
  for (const Placing::Waiting& one : placing_.waiting()) waiting[one.place.actor] = &one;
  std::vector<ActorRow>& rows = reply.actors;
  for (auto& [spec, location] : actors_.list()) {
    ActorRow row;
    row.actor = spec.id;
    row.job = spec.job;
    row.name = spec.name;
    row.name_space = spec.name_space;
    row.class_name = spec.class_name;
    row.state = location.state;
    row.node = location.node;
    row.incarnation = location.incarnation;
    row.restarts = actors_.restarts(spec.id);
    row.detached = spec.detached;
    if (location.error) row.why = location.error->message;
    if (location.retry_in > Duration::zero())
      row.why += "; next attempt " + pause_text(location.retry_in) + " after that";
    if (const auto at = waiting.find(spec.id); at != waiting.end()) row.why = at->second->why;
    for (std::string* text : {&row.name, &row.name_space, &row.class_name, &row.why})
      shorten(*text);
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const ActorRow& a, const ActorRow& b) {
    return std::make_pair(a.incarnation, a.actor) > std::make_pair(b.incarnation, b.actor);
  });
  reply.left_off = fit(rows, [](const ActorRow& row) {
    return 128 + row.name.size() + row.name_space.size() + row.class_name.size() + row.why.size();
  });
}

void Service::list_names(ListReply& reply) const {
  for (const auto& [name, what] : names_.all()) {
    reply.objects.push_back(what);
    shorten(reply.objects.back().type);
  }
  reply.left_off = fit(
      reply.objects, [](const ObjectName& row) { return 160 + row.name.size() + row.type.size(); });
}

/// Lists jobs without the fields that only agents need.
void Service::list_jobs(ListReply& reply) const {
  std::vector<JobRecord>& rows = reply.jobs;
  rows = jobs_.list();
  std::sort(rows.begin(), rows.end(), [](const JobRecord& a, const JobRecord& b) {
    return std::make_pair(a.started_ns, a.id) > std::make_pair(b.started_ns, b.id);
  });
  for (JobRecord& row : rows) {
    row.files.clear();
    row.arguments.clear();
    for (std::string* text : {&row.name, &row.why, &row.program}) shorten(*text);
  }
  reply.left_off = fit(rows, [](const JobRecord& row) {
    return 128 + row.name.size() + row.why.size() + row.program.size();
  });
}

}  // namespace troupe::control
