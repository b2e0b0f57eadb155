/// The verbs `troupe list names` and `troupe forget`.
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/cli/control_lists.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <cstdio>
#include <map>

namespace troupe::cli {
namespace {

using What = control::ListRequest::What;

Json json_of(const control::ObjectName& row) {
  return {{"name", row.name},    {"object", row.object.str()}, {"type", row.type},
          {"bytes", row.bytes},  {"owner", row.owner.str()},   {"keeper", row.keeper.str()},
          {"job", row.job.str()}};
}

}  // namespace

std::string text_of_names(const std::vector<control::ObjectName>& objects,
                          const std::map<NodeId, std::string>& nodes) {
  std::vector<std::vector<std::string>> rows{{"NAME", "SIZE", "TYPE", "NODE", "JOB", "OBJECT"}};
  for (const auto& row : objects)
    rows.push_back({row.name, size_text(row.bytes), short_name(row.type),
                    node_text(nodes, row.owner), row.job.str().substr(0, 8), row.object.str()});
  return table_text(rows);
}

Exit list_names(const Request& request) {
  const Time until = steady_now() + kControlAnswers;
  Asked asked(request, kDoorAnswers);
  observe::Missing missing;
  ControlLists control(asked, until, missing);
  const auto names = control.list(What::objects).objects;
  std::map<NodeId, std::string> nodes;
  for (const auto& row : control.list(What::nodes).nodes)
    nodes[row.description.id] = row.description.name;
  if (request.json) {
    Json rows = Json::array();
    for (const auto& name : names) rows.push_back(json_of(name));
    print({{"kind", "names"},
           {"at_unix_ns", unix_nanoseconds()},
           {"total", names.size()},
           {"matched", names.size()},
           {"shown", names.size()},
           {"unanswered", missing.json()},
           {"rows", std::move(rows)}});
  } else {
    std::printf("%s", text_of_names(names, nodes).c_str());
  }
  print_missing(missing);
  return Exit::ok;
}

Exit forget(const Request& request, const std::string& name) {
  Asked asked(request);
  const auto gone = asked.forget(name);
  if (!gone)
    throw Failure{Exit::failed, Error(Code::invalid_argument, "no object has the name '" +
                                                                  visible_text(name, 80) +
                                                                  "': see 'troupe list names'")};
  if (request.json)
    print(json_of(*gone));
  else
    std::printf("'%s' is forgotten; its %s are freed with the last ref\n",
                visible_text(gone->name).c_str(), size_text(gone->bytes).c_str());
  return Exit::ok;
}

}  // namespace troupe::cli
