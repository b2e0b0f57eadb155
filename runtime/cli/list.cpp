/// The verbs `troupe list` and `troupe get`: rows of agents and processes, and rows of control.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/cli/control_lists.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/node_states.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/answer.hpp"
#include "troupe/runtime/observe/document.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

namespace troupe::cli {
namespace {

using observe::Answer;
using observe::Query;
using observe::Row;
using observe::RowKind;
using What = control::ListRequest::What;

/// Names of nodes by id.
using NodeNames = std::map<NodeId, std::string>;

constexpr Duration kRowsAtLeast = std::chrono::milliseconds(200);
/// The time after which `get` asks for no more pages.
constexpr Duration kGetTakes = std::chrono::seconds(5);

/// Fills in a row's values by the names of their fields. An empty text is no value.
class RowMaker {
 public:
  RowMaker(RowKind kind, std::string id)
      : kind_(kind), row_(observe::make_row(kind, std::move(id))) {}
  RowMaker& text(std::string_view field, std::string value) {
    if (!value.empty()) cell(field) = std::move(value);
    return *this;
  }
  RowMaker& count(std::string_view field, std::uint64_t value) {
    cell(field) = static_cast<std::int64_t>(std::min<std::uint64_t>(value, INT64_MAX));
    return *this;
  }
  RowMaker& amount(std::string_view field, scheduling::Amount value) {
    cell(field) = static_cast<double>(value) / static_cast<double>(scheduling::kUnit);
    return *this;
  }
  RowMaker& flag(std::string_view field, bool value) {
    cell(field) = value;
    return *this;
  }
  Row take() { return std::move(row_); }

 private:
  observe::Cell& cell(std::string_view field) {
    return row_.cells[observe::column_of(kind_, field)];
  }
  const RowKind kind_;
  Row row_;
};

std::string name_in(const NodeNames& names, NodeId node) {
  if (!node) return {};
  const auto at = names.find(node);
  return at != names.end() ? at->second : node.str();
}

template <class Value>
std::string pairs_text(const std::vector<std::pair<std::string, Value>>& pairs) {
  std::string text;
  for (const auto& [name, value] : pairs) {
    text += (text.empty() ? "" : ",") + name + "=";
    if constexpr (std::is_same_v<Value, std::string>)
      text += value;
    else
      text += observe::number_text(static_cast<double>(value) / scheduling::kUnit);
  }
  return text;
}

Row row_of(const control::ClusterRow& node, const NodeStates& states) {
  const auto& total = node.description.resources;
  const auto& free = node.report.view.free;
  std::vector<std::pair<std::string, std::string>> labels(node.description.labels.begin(),
                                                          node.description.labels.end());
  return RowMaker(RowKind::nodes, node.description.id.str())
      .text("name", node.description.name)
      .text("state", states.state_of(node))
      .amount("cpus", total.cpus)
      .amount("cpus_used", total.cpus - free.cpus)
      .amount("gpus", total.gpus)
      .amount("gpus_used", total.gpus - free.gpus)
      .count("store", node.report.store_capacity)
      .count("store_used", node.report.store_used)
      .count("workers", node.report.workers)
      .text("resources", pairs_text(total.custom))
      .text("labels", pairs_text(labels))
      .text("why", states.why(node))
      .take();
}

Row row_of(const control::DeadNode& node, std::int64_t as_of) {
  std::vector<std::pair<std::string, std::string>> labels(node.description.labels.begin(),
                                                          node.description.labels.end());
  RowMaker row(RowKind::nodes, node.description.id.str() + "-" + std::to_string(node.epoch));
  row.text("id", node.description.id.str())
      .text("name", node.description.name)
      .text("state", node.left ? "left" : "dead")
      .amount("cpus", node.description.resources.cpus)
      .amount("gpus", node.description.resources.gpus)
      .text("resources", pairs_text(node.description.resources.custom))
      .text("labels", pairs_text(labels))
      .text("why", node.why);
  if (node.died_unix_ns > 0)
    row.count("since",
              static_cast<std::uint64_t>(std::max<std::int64_t>(as_of - node.died_unix_ns, 0)));
  return row.take();
}

/// How many calls of each actor have not ended.
struct Queues {
  std::map<std::string, std::uint64_t> calls;
  bool are_all = false;  ///< an actor that is not among them has none
};

Row row_of(const control::ActorRow& actor, const NodeNames& names, const Queues& queues) {
  const auto queue = queues.calls.find(actor.actor.str());
  RowMaker row(RowKind::actors, actor.actor.str());
  if (queue != queues.calls.end())
    row.count("queue", queue->second);
  else if (queues.are_all)
    row.count("queue", 0);
  return row.text("class", actor.class_name)
      .text("name", actor.name)
      .text("namespace", actor.name_space)
      .text("state", std::string(name_of(actor.state)))
      .text("node", name_in(names, actor.node))
      .count("restarts", actor.restarts)
      .text("job", actor.job ? actor.job.str() : "")
      .flag("detached", actor.detached)
      .text("why", actor.why)
      .take();
}

Row row_of(const control::JobRecord& job, const NodeNames& names, std::int64_t as_of) {
  RowMaker row(RowKind::jobs, job.id.str());
  row.text("name", job.name)
      .text("state", std::string(name_of(job.state)))
      .text("node", name_in(names, job.node))
      .text("user", job.user)
      .text("program", job.program)
      .text("why", job.why);
  if (job.pid > 0) row.count("pid", job.pid);
  if (job.started_ns > 0) row.count("started", static_cast<std::uint64_t>(job.started_ns));
  if (job.ended_ns > 0) row.count("ended", static_cast<std::uint64_t>(job.ended_ns));
  const std::int64_t since = job.ended_ns > 0 ? job.ended_ns : job.started_ns;
  if (since > 0 && since <= as_of) row.count("since", static_cast<std::uint64_t>(as_of - since));
  return row.take();
}

/// What else is known about the objects of a list.
struct ObjectFacts {
  const NodeNames& names;
  std::map<ObjectId, std::string> name_of;  ///< those that have one
  std::uint64_t leak_after = 0;             ///< nanoseconds
};

/// Objects that only their holder can name have no id: they get a place on the list.
Row row_of(const wire::MemoryObject& object, const std::string& node, std::size_t place,
           const ObjectFacts& facts) {
  const std::string id =
      object.id ? object.id.str() : "unnamed-" + node + "-" + std::to_string(place);
  const auto named = facts.name_of.find(object.id);
  const std::string name = named == facts.name_of.end() ? "" : named->second;
  RowMaker row(RowKind::objects, id + "@" + node);  // a copy on another node is another row
  row.text("id", id)
      .count("bytes", object.bytes)
      .text("state", std::string(name_of(object.state)))
      .text("node", node)
      .text("owner", name_in(facts.names, object.owner))
      .text("maker", object.maker_pid == 0 ? "" : node + "/" + std::to_string(object.maker_pid))
      .text("job", object.job ? object.job.str() : "")
      .count("held", static_cast<std::uint64_t>(std::max<std::int64_t>(object.held, 0)))
      .count("pins", object.pins)
      .text("site", object.site)
      .text("name", name)
      .text("holders", holders_text(facts.names, name, object))
      .text("suspicion", suspicion(object, facts.leak_after));
  if (object.age_ns != 0) row.count("since", object.age_ns).count("unused", object.unused_ns);
  return row.take();
}

NodeNames names_in(const control::ListReply& reply) {
  NodeNames names;
  for (const auto& node : reply.nodes) names[node.description.id] = node.description.name;
  for (const auto& node : reply.dead_nodes)
    if (!node.description.name.empty())
      names.try_emplace(node.description.id, node.description.name + " (gone)");
  return names;
}

/// Asks control and nodes for the rows that control knows, in a time that is set at the start.
class ControlRows {
 public:
  ControlRows(Asked& asked, const observe::Question& question, const Query& query,
              double leak_after, Time begin)
      : asked_(asked),
        question_(question),
        query_(query),
        leak_after_(static_cast<std::uint64_t>(leak_after * 1e9)),
        begin_(begin),
        control_(asked, begin + kControlAnswers, missing_),
        merge_(query, observe::Merge::Place::verb) {}

  Answer take() {
    const std::int64_t now = unix_nanoseconds();
    const control::ListReply nodes = control_.list(What::nodes);
    names_ = names_in(nodes);
    for (const auto& node : nodes.nodes) living_[node.description.id] = node.description.name;
    observe::Selection selection(query_);
    if (query_.kind() == RowKind::nodes) {
      const NodeStates states(nodes.nodes);
      for (const auto& node : nodes.nodes) selection.offer(row_of(node, states));
      for (const auto& node : nodes.dead_nodes) selection.offer(row_of(node, query_.as_of(now)));
    }
    if (query_.kind() == RowKind::actors) add_actors(selection);
    if (query_.kind() == RowKind::jobs)
      for (const auto& job : control_.list(What::jobs).jobs)
        selection.offer(row_of(job, names_, query_.as_of(now)));
    if (query_.kind() == RowKind::objects) add_objects(selection);
    Answer selected = selection.take();
    selected.more_unanswered = missing_.more();
    merge_.add(std::move(selected));
    for (const observe::Unanswered& source : missing_.sources())
      merge_.add_unanswered(source.node, source.pid, source.why, source.is_silent);
    return merge_.take(now);
  }

 private:
  Duration left_of(Duration limit) const {
    return std::max<Duration>(begin_ + limit - steady_now(), std::chrono::milliseconds(1));
  }
  void add_actors(observe::Selection& selection) {
    const auto actors = control_.list(What::actors).actors;
    Queues queues;
    if (!actors.empty()) {
      const auto calls = asked_.try_rows({.kind = RowKind::queues,
                                          .where = {},
                                          .sort = "calls:desc",
                                          .limit = observe::kMaxRows,
                                          .after = {}},
                                         left_of(kRowsAnswer));
      if (calls)
        missing_.add(*calls);
      else
        missing_.add(asked_.node_name(), 0, calls.error().message());
      queues.are_all = calls && calls->unanswered.empty() && calls->rows.size() >= calls->matched;
      static const std::size_t kCalls = observe::column_of(RowKind::queues, "calls");
      if (calls)
        for (const Row& row : calls->rows)
          if (row.cells.size() > kCalls)
            if (const auto* count = std::get_if<std::int64_t>(&row.cells[kCalls]))
              queues.calls[row.id] = static_cast<std::uint64_t>(std::max<std::int64_t>(*count, 0));
    }
    for (const auto& actor : actors) selection.offer(row_of(actor, names_, queues));
  }
  /// Adds the nodes that are not asked. Without control their ids are not known, but agents know
  /// their names.
  void add_unasked() {
    const auto agents = asked_.try_rows({.kind = RowKind::processes,
                                         .where = "kind = agent",
                                         .sort = {},
                                         .limit = observe::kMaxRows,
                                         .after = {}},
                                        std::max(left_of(kRowsAnswer), kRowsAtLeast));
    constexpr std::string_view kWhy = "objects are not asked for while control does not answer";
    if (!agents) return missing_.add("the other nodes", 0, kWhy);
    missing_.add(*agents);
    static const std::size_t kNode = observe::column_of(RowKind::processes, "node");
    for (const Row& row : agents->rows)
      if (const auto* name = std::get_if<std::string>(&row.cells.at(kNode));
          name != nullptr && *name != asked_.node_name())
        missing_.add(*name, 0, kWhy);
  }
  /// Adds the objects of all nodes that control knows; without control, those of the node that is
  /// asked.
  void add_objects(observe::Selection& selection) {
    ObjectFacts facts{.names = names_, .name_of = {}, .leak_after = leak_after_};
    for (const auto& row : control_.list(What::objects).objects)
      facts.name_of.emplace(row.object, row.name);
    NodeNames asked = living_;
    if (asked.empty()) asked[NodeId{}] = asked_.node_name();
    std::vector<NodeId> nodes;
    for (const auto& [id, name] : asked) nodes.push_back(id);
    auto told = asked_.objects(nodes, question_, left_of(kRowsAnswer));
    if (told.own) {
      missing_.add(*told.own);
      told.own->unanswered.clear();
      told.own->more_unanswered = 0;
      merge_.add(std::move(*told.own));
    } else {
      missing_.add(asked_.node_name(), 0, told.own.error().message());
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::string& name = asked.at(nodes[i]);
      const auto& report = told.reports[i];
      if (!report) {
        missing_.add(name, 0, report.error().message());
        continue;
      }
      std::size_t place = 0;
      for (const wire::MemoryObject& object : report->rows)
        selection.offer(row_of(object, name, ++place, facts));
      if (report->rows_in_all > report->rows.size())
        missing_.add(name, 0,
                     "it tells of its " + std::to_string(report->rows.size()) +
                         " largest objects of " + std::to_string(report->rows_in_all),
                     false);
    }
    if (living_.empty()) add_unasked();
  }

  Asked& asked_;
  const observe::Question& question_;
  const Query& query_;
  const std::uint64_t leak_after_;
  const Time begin_;
  observe::Missing missing_;
  ControlLists control_;
  observe::Merge merge_;
  NodeNames names_, living_;
};

bool is_of_control(RowKind kind) {
  return kind == RowKind::nodes || kind == RowKind::actors || kind == RowKind::jobs ||
         kind == RowKind::objects;
}

/// Asks whoever has rows of the kind, and returns a page of them.
/// `begin`: when the verb began to look for a node.
Answer answer_to(Asked& asked, const observe::Question& question, const Query& query,
                 double leak_after, Time begin) {
  if (is_of_control(query.kind()))
    return ControlRows(asked, question, query, leak_after, begin).take();
  return asked.rows(question, query,
                    std::max<Duration>(begin + kRowsAnswer - steady_now(), kRowsAtLeast));
}

Query parsed(const observe::Question& question) {
  auto query = Query::parse(question);
  if (!query) throw Failure{Exit::usage, query.error()};
  return std::move(*query);
}

/// Returns what the table shows as the row's id.
std::string id_of(RowKind kind, const Row& row) {
  if (observe::columns_of(kind).front().field != "id" || row.cells.empty()) return row.id;
  const auto* shown = std::get_if<std::string>(&row.cells.front());
  return shown != nullptr && row.id.starts_with(*shown) ? *shown : row.id;
}

/// Returns the rows whose id begins or ends with the part. Reads all pages, for kGetTakes at most.
Answer candidates(Asked& asked, RowKind kind, const std::string& part) {
  observe::Question question{
      .kind = kind, .where = {}, .sort = {}, .limit = observe::kMaxRows, .after = {}};
  const auto slash = part.rfind('/');
  if (kind != RowKind::processes)
    question.where = std::string(observe::fields_of(kind)[0].name) + " ~ '" + part + "'";
  else if (slash != std::string::npos)
    question.where = "node ~ '" + part.substr(0, slash) + "'";
  question.after = std::to_string(unix_nanoseconds());  // all pages tell of one time
  const Time until = steady_now() + kGetTakes;
  Answer all;
  observe::Missing missing;
  do {
    if (all.rows.size() >= observe::kMaxRows || steady_now() >= until) {
      missing.add("later pages", 0, "there are too many: give more of the id", false);
      break;
    }
    Answer page =
        answer_to(asked, question, parsed(question), ListRequest().leak_after, steady_now());
    missing.add(page);
    for (Row& row : page.rows) {
      const std::string id = id_of(kind, row);
      if (id.starts_with(part) || id.ends_with(part)) all.rows.push_back(std::move(row));
    }
    question.after = std::move(page.next);
  } while (!question.after.empty());
  all.unanswered = missing.sources();
  all.more_unanswered = missing.more();
  return all;
}

std::string cell_text(const observe::Column& column, const observe::Cell& cell) {
  const FieldValue value = observe::value_of(cell);
  if (const auto* words = std::get_if<std::string_view>(&value)) return std::string(*words);
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr) return "-";
  const auto whole = static_cast<std::uint64_t>(std::clamp(*number, 0.0, 9e18));
  if (column.kind == FieldKind::time) return age_text(whole);
  if (column.kind == FieldKind::bytes) return size_text(whole);
  return observe::number_text(*number);
}

}  // namespace

Json waiting_rows(const Answer& reasons) {
  return *observe::document_of(RowKind::reasons, reasons, 0).find("rows");
}

std::string waiting_text(const Answer& reasons) {
  const std::size_t tasks_at = observe::column_of(RowKind::reasons, "tasks");
  std::string text;
  std::int64_t all = 0;
  for (const Row& row : reasons.rows) {
    const auto* tasks = std::get_if<std::int64_t>(&row.cells[tasks_at]);
    const std::int64_t count = tasks == nullptr ? 0 : *tasks;
    all += count;
    text += "  " + std::to_string(count) + ": " + visible_text(row.id, 300) + "\n";
  }
  if (text.empty()) return text;
  return std::to_string(all) + (all == 1 ? " task waits" : " tasks wait") + "\n" + text;
}

Exit list_rows(const ListRequest& request) {
  observe::Question question = request.question;
  if (question.kind == RowKind::objects && question.sort.empty()) question.sort = "bytes:desc";
  (void)parsed(question);
  // All sources tell of one time, and so do later pages.
  if (question.after.empty()) question.after = std::to_string(unix_nanoseconds());
  const Query query = parsed(question);
  const Time begin = steady_now();
  Asked asked(request, kDoorAnswers);
  const Answer answer = answer_to(asked, question, query, request.leak_after, begin);
  if (request.json)
    print(observe::document_of(query.kind(), answer, query.as_of(unix_nanoseconds())));
  else
    std::printf("%s", observe::text_of(query.kind(), answer).c_str());
  print_missing(observe::Missing(answer));
  return Exit::ok;
}

Exit get(const Request& request, const std::string& kind_name, const std::string& part) {
  std::string plural = kind_name;
  if (plural == "process") plural = "processes";
  if (!plural.empty() && plural.back() != 's') plural += 's';
  if (plural == "names") throw_usage("'troupe list names' shows all that is known about names");
  const auto kind = observe::parse_row_kind(plural);
  if (!kind) throw Failure{Exit::usage, kind.error()};
  const bool is_plain = std::all_of(part.begin(), part.end(), [](unsigned char c) {
    return std::isprint(c) != 0 && c != '\'' && c != '"';
  });
  if (!is_plain || part.empty() || part.size() > observe::kMaxIdBytes)
    throw_usage("the id is no text that a list prints: 'troupe list " + plural + "' prints them");
  Asked asked(request);
  Answer answer = candidates(asked, *kind, part);
  std::vector<std::string> ids;
  for (const Row& row : answer.rows) ids.push_back(id_of(*kind, row));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  const auto id = observe::id_meant(part, ids, plural);
  const observe::Missing missing(answer);
  if (!id) {
    print_missing(missing);
    if (missing.empty()) throw Failure{Exit::usage, id.error()};
    throw Failure{Exit::unreachable, Error(id.error().code(), id.error().message() + kMaySilent)};
  }
  std::erase_if(answer.rows, [&](const Row& row) { return id_of(*kind, row) != *id; });
  answer.total = answer.matched = answer.rows.size();
  answer.next.clear();
  if (request.json) {
    print(observe::document_of(*kind, answer, unix_nanoseconds()));
    print_missing(missing);
    return Exit::ok;
  }
  std::vector<std::vector<std::string>> table{{"FIELD", "VALUE"}};
  const auto columns = observe::columns_of(*kind);
  for (std::size_t i = 0; i < columns.size(); ++i)
    table.push_back(
        {std::string(columns[i].field), cell_text(columns[i], answer.rows.front().cells[i])});
  std::printf("%s", observe::table_text(table).c_str());
  print_missing(missing);
  return Exit::ok;
}

}  // namespace troupe::cli
