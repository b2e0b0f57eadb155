/// The verb `troupe status`, and the connection that verbs ask through.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/cli/control_lists.hpp"
#include "troupe/runtime/cli/failures.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/node_states.hpp"
#include "troupe/runtime/cli/observer.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/answer.hpp"

#include <algorithm>
#include <cstdio>
#include <future>
#include <map>

namespace troupe::cli {
namespace {

using scheduling::kUnit;
using What = control::ListRequest::What;

double units(scheduling::Amount amount) {
  return static_cast<double>(amount) / static_cast<double>(kUnit);
}

/// Returns 1.5 as "1.5", 2 as "2".
std::string units_text(scheduling::Amount amount) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", units(amount));
  return text;
}

std::string of_total(scheduling::Amount free, scheduling::Amount total) {
  return units_text(total - free) + "/" + units_text(total);
}

/// Sorts node-2 before node-10, as people count.
void sort_by_name(std::vector<control::ClusterRow>& nodes) {
  const auto before = [](const control::ClusterRow& a, const control::ClusterRow& b) {
    const std::string &x = a.description.name, &y = b.description.name;
    if (x.size() != y.size()) return x.size() < y.size();
    return x != y ? x < y : a.description.id < b.description.id;
  };
  std::sort(nodes.begin(), nodes.end(), before);
}

Json json_of(const control::ClusterRow& row, const NodeStates& states) {
  const auto& total = row.description.resources;
  const auto& free = row.report.view.free;
  Json labels = Json::object(), resources = Json::object();
  for (const auto& [name, value] : row.description.labels) labels[name] = value;
  for (const auto& [name, amount] : total.custom)
    resources[name] = {{"total", units(amount)}, {"free", units(free.custom_amount(name))}};
  return {
      {"id", row.description.id.str()},
      {"name", row.description.name},
      {"state", states.state_of(row)},
      {"unreachable_from", states.unreached_from(row)},
      {"why", states.why(row)},
      {"address", row.description.address},
      {"cpus", {{"total", units(total.cpus)}, {"free", units(free.cpus)}}},
      {"gpus", {{"total", units(total.gpus)}, {"free", units(free.gpus)}}},
      {"memory_bytes", {{"total", total.memory}, {"free", free.memory}}},
      {"store_bytes", {{"capacity", row.report.store_capacity}, {"used", row.report.store_used}}},
      {"resources", std::move(resources)},
      {"labels", std::move(labels)},
      {"workers", row.report.workers}};
}

Json json_of(const control::ActorRow& row) {
  return {{"id", row.actor.str()},
          {"job", row.job.str()},
          {"name", row.name},
          {"namespace", row.name_space},
          {"class", row.class_name},
          {"state", name_of(row.state)},
          {"node", row.node ? row.node.str() : ""},
          {"restarts", row.restarts},
          {"detached", row.detached},
          {"why", row.why}};
}

Json json_of(const control::JobRecord& row) {
  return {{"id", row.id.str()},
          {"name", row.name},
          {"state", name_of(row.state)},
          {"node", row.node ? row.node.str() : ""},
          {"program", row.program},
          {"started_unix_ns", row.started_ns},
          {"ended_unix_ns", row.ended_ns},
          {"why", row.why}};
}

Json json_rows(const std::vector<control::ClusterRow>& nodes) {
  const NodeStates states(nodes);
  Json list = Json::array();
  for (const auto& row : nodes) list.push_back(json_of(row, states));
  return list;
}

/// Returns the part by which the ids of these rows differ.
template <class Row, class Id>
IdPart part_of(const std::vector<Row>& rows, Id id) {
  std::vector<std::string> ids;
  for (const Row& row : rows) ids.push_back(id(row).str());
  return unique_part(std::move(ids));
}
IdPart actors_part(const std::vector<control::ActorRow>& actors) {
  return part_of(actors, [](const auto& row) { return row.actor; });
}

template <class Row>
Json json_rows(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(json_of(row));
  return list;
}

using Names = std::map<NodeId, std::string>;

Names names_of(const std::vector<control::ClusterRow>& nodes) {
  Names names;
  for (const auto& row : nodes) names[row.description.id] = row.description.name;
  return names;
}

std::string text_of(const std::vector<control::ClusterRow>& nodes) {
  std::vector<std::vector<std::string>> rows{
      {"NODE", "STATE", "CPUS", "GPUS", "STORE", "WORKERS", "ID"}};
  const NodeStates states(nodes);
  const IdPart part = part_of(nodes, [](const auto& row) { return row.description.id; });
  for (const auto& row : nodes) {
    const auto& total = row.description.resources;
    const auto& free = row.report.view.free;
    rows.push_back({row.description.name, states.state_of(row), of_total(free.cpus, total.cpus),
                    of_total(free.gpus, total.gpus),
                    size_text(row.report.store_used) + "/" + size_text(row.report.store_capacity),
                    std::to_string(row.report.workers), part.of(row.description.id.str())});
  }
  std::string text = table_text(rows);
  for (const auto& row : nodes) {
    for (const std::string& why : {states.reach_text(row), row.slow})
      if (!why.empty()) text += visible_text(row.description.name + ": " + why) + "\n";
  }
  return text;
}

Json json_rows(const std::vector<control::DeadNode>& nodes) {
  Json list = Json::array();
  for (const auto& node : nodes)
    list.push_back({{"id", node.description.id.str()},
                    {"name", node.description.name},
                    {"state", node.left ? "left" : "dead"},
                    {"address", node.description.address},
                    {"died_unix_ns", node.died_unix_ns},
                    {"why", node.why}});
  return list;
}

std::string text_of(const std::vector<control::ActorRow>& actors, const Names& names) {
  std::vector<std::vector<std::string>> rows{
      {"ACTOR", "STATE", "CLASS", "NAME", "NODE", "RESTARTS", "JOB", "WHY"}};
  const IdPart actor = actors_part(actors);
  const IdPart job = part_of(actors, [](const auto& row) { return row.job; });
  for (const auto& row : actors)
    rows.push_back({actor.of(row.actor.str()), std::string(name_of(row.state)),
                    short_name(row.class_name), row.name.empty() ? "-" : row.name,
                    node_text(names, row.node), std::to_string(row.restarts),
                    row.detached ? "detached" : job.of(row.job.str()), row.why});
  return table_text(rows);
}

std::string text_of(const std::vector<control::JobRecord>& jobs, const Names& names) {
  std::vector<std::vector<std::string>> rows{{"JOB", "STATE", "NAME", "DRIVER ON", "WHY"}};
  const IdPart part = part_of(jobs, [](const auto& row) { return row.id; });
  for (const auto& row : jobs)
    rows.push_back({part.of(row.id.str()), std::string(name_of(row.state)), row.name,
                    node_text(names, row.node), row.why});
  return table_text(rows);
}

/// Returns why actors do not live though they should, for the first few.
std::string troubles_of(const std::vector<control::ActorRow>& actors) {
  constexpr int kMost = 10;
  std::string text;
  int troubles = 0;
  const IdPart part = actors_part(actors);
  for (const auto& row : actors)
    if (row.state != control::ActorState::alive && !row.why.empty() && ++troubles <= kMost)
      text += "actor " + part.of(row.actor.str()) + ": " + visible_text(row.why) + "\n";
  if (troubles > kMost)
    text += "... and " + std::to_string(troubles - kMost) + " more: troupe list actors\n";
  return text;
}

void keep_living(std::vector<control::ActorRow>& actors) {
  actors.erase(std::remove_if(actors.begin(), actors.end(),
                              [](const control::ActorRow& row) {
                                return row.state == control::ActorState::dead;
                              }),
               actors.end());
}

/// Connects to the first of the host's nodes that answers. With others to ask, a node has a third of
/// the time.
Observer open_observer(const Target& target, Duration limit) {
  const auto& others = target.file.other_doors;
  const Time until = steady_now() + limit;
  auto observer =
      Observer::connect(target.file.socket_name, others.empty() ? limit : Duration(limit / 3));
  for (const std::string& door : others) {
    if (observer || steady_now() >= until) break;
    if (auto other = Observer::connect(door, std::min<Duration>(until - steady_now(), limit / 3)))
      observer = std::move(other);
  }
  if (!observer) raise(named(target, observer.error()));
  return std::move(*observer);
}

}  // namespace

Error named(const Target& target, const Error& error) {
  return Error(error.code(),
               "the cluster of " + target.path + " does not answer: " + error.message());
}

Asked::Asked(const Request& request, Duration limit)
    : target(find_cluster(request)), observer_(open_observer(target, limit)) {}

control::ListReply Asked::list(What what) {
  auto reply = try_list(what, std::chrono::seconds(5));
  if (!reply) raise(named(target, reply.error()));
  if (reply->left_off > 0)
    std::fprintf(stderr, "troupe: an answer has no room for %u more, which are not shown\n",
                 reply->left_off);
  return std::move(*reply);
}

Result<control::ListReply> Asked::try_list(What what, Duration limit) {
  auto reply = observer_.list(what, limit);
  if (!reply) return reply.error();
  sort_by_name(reply->nodes);
  return std::move(*reply);
}

std::optional<control::ObjectName> Asked::forget(const std::string& name) {
  auto gone = observer_.forget(name);
  if (!gone) raise(named(target, gone.error()));
  return std::move(*gone);
}

wire::MemoryReport Asked::memory(NodeId node) {
  auto report = observer_.memory(node);
  if (!report) raise(named(target, report.error()));
  return std::move(*report);
}

Observer::Objects Asked::objects(const std::vector<NodeId>& nodes,
                                 const observe::Question& question, Duration limit) {
  return observer_.objects(nodes, question, limit);
}

Result<observe::Answer> Asked::try_rows(const observe::Question& question, Duration limit) {
  return observer_.rows(question, limit);
}

observe::Answer Asked::rows(const observe::Question& question, const observe::Query& query,
                            Duration limit) {
  observe::Merge merge(query, observe::Merge::Place::verb);
  auto told = try_rows(question, limit);
  if (told)
    merge.add(std::move(*told));
  else if (told.error().code() == Code::timed_out)
    merge.add_unanswered(node_name(), 0, told.error().message());
  else
    raise(named(target, told.error()));
  return merge.take(unix_nanoseconds());
}

void Asked::drain(NodeId node, Duration within) {
  if (const auto done = observer_.drain(node, within); !done) raise(named(target, done.error()));
}

Result<wire::LogBatch> Asked::logs(NodeId node, const wire::LogQuestion& question) {
  return observer_.logs(node, question, std::chrono::seconds(2));
}

Result<std::string> Asked::stacks(NodeId node, const wire::StackQuestion& question) {
  return observer_.stacks(node, question);
}

Result<void> Asked::stop_job(NodeId node, const wire::StopQuestion& question) {
  return observer_.stop_job(node, question);
}

namespace {

/// What `status` shows: what control and the nodes have told.
struct Seen {
  control::ListReply nodes;
  std::vector<control::ActorRow> actors;
  std::vector<control::JobRecord> jobs;
  observe::Answer waiting;
  std::uint64_t failures = 0;
  observe::Missing missing;
  bool is_told = true;  ///< by control
};

Result<observe::Answer> answer_of(const Request& request, const observe::Question* question) {
  try {
    Asked asked(request);
    return question == nullptr ? recent_failures(asked, 1, kRowsAnswer)
                               : asked.try_rows(*question, kRowsAnswer);
  } catch (const Error& error) {
    return error;
  }
}

Seen look(Asked& asked, const Request& request) {
  const observe::Question reasons{
      .kind = observe::RowKind::reasons, .where = {}, .sort = {}, .limit = 20, .after = {}};
  // At the same time, since each question may wait for a silent node.
  auto failed = ask_beside([&] { return answer_of(request, nullptr); });
  auto waits = ask_beside([&] { return answer_of(request, &reasons); });
  Seen seen;
  ControlLists control(asked, steady_now() + kControlAnswers, seen.missing);
  seen.nodes = control.list(What::nodes);
  seen.actors = control.list(What::actors).actors;
  seen.jobs = control.list(What::jobs).jobs;
  seen.is_told = !control.is_silent();
  const auto add = [&](Result<observe::Answer> answer) -> observe::Answer {
    if (!answer) {
      seen.missing.add(asked.node_name(), 0, answer.error().message());
      return {};
    }
    seen.missing.add(*answer);
    return std::move(*answer);
  };
  seen.waiting = add(waits.get());
  seen.failures = add(failed.get()).matched;
  return seen;
}

}  // namespace

Exit status(const Request& request, bool verbose) {
  Asked asked(request);
  Seen seen = look(asked, request);
  const auto& nodes = seen.nodes.nodes;
  auto& actors = seen.actors;
  const auto& jobs = seen.jobs;
  keep_living(actors);
  const auto running = std::count_if(jobs.begin(), jobs.end(), [](const control::JobRecord& job) {
    return job.state == control::JobState::running;
  });
  const os::ClusterFile& file = asked.target.file;
  const Exit exit = seen.is_told ? Exit::ok : Exit::unreachable;
  if (request.json) {
    print({{"cluster", file.cluster.str()},
           {"file", asked.target.path},
           {"version", file.version},
           {"control", file.control_door},
           {"through", asked.node_name()},
           {"nodes", json_rows(nodes)},
           {"actors", json_rows(actors)},
           {"jobs", json_rows(jobs)},
           {"waiting", waiting_rows(seen.waiting)},
           {"failures", seen.failures},
           {"dead_nodes", json_rows(seen.nodes.dead_nodes)},
           {"unanswered", seen.missing.json()}});
    print_missing(seen.missing);
    return exit;
  }
  std::string dead;
  for (const std::string& line : dead_lines(seen.nodes.dead_nodes, unix_nanoseconds()))
    dead += line + "\n";
  std::printf("cluster %s, troupe %s, control at %s, asked through %s\n%s%s%s",
              file.cluster.str().substr(0, 8).c_str(), file.version.c_str(),
              file.control_door.c_str(), visible_text(asked.node_name()).c_str(),
              text_of(nodes).c_str(), dead.c_str(), failures_text(seen.failures).c_str());
  const Names names = names_of(nodes);
  if (!seen.is_told) {  // control may have told of the actors, and then no more
    std::printf("actors and jobs: not known\n%s%s", waiting_text(seen.waiting).c_str(),
                actors.empty() ? "" : text_of(actors, names).c_str());
  } else if (verbose) {
    std::printf("%s\n%s\n%s", waiting_text(seen.waiting).c_str(), text_of(actors, names).c_str(),
                text_of(jobs, names).c_str());
  } else {
    std::printf("%zu actor%s, %td running job%s\n%s%s", actors.size(),
                actors.size() == 1 ? "" : "s", running, running == 1 ? "" : "s",
                waiting_text(seen.waiting).c_str(), troubles_of(actors).c_str());
  }
  print_missing(seen.missing);
  return exit;
}

}  // namespace troupe::cli
