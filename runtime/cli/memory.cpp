/// The verb `troupe memory`.
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/observe/missing.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

namespace troupe::cli {
namespace {

using wire::MemoryObject;
using wire::MemoryUser;

struct Reports {
  std::vector<wire::MemoryReport> reports;
  std::map<NodeId, std::string> names;
  std::map<std::string, std::string> silent;  ///< nodes without a report, and why
  std::vector<control::ObjectName> named;     ///< objects that outlive their program
  std::map<ObjectId, std::string> name_of;    ///< one name of each of these
};

/// Asks every node for its report. A node that does not answer goes to `silent`.
Reports reports_of(Asked& asked) {
  Reports all;
  const auto nodes = asked.list(control::ListRequest::What::nodes).nodes;
  for (const auto& row : nodes) all.names[row.description.id] = row.description.name;
  all.named = asked.list(control::ListRequest::What::objects).objects;
  for (const auto& row : all.named) all.name_of.emplace(row.object, row.name);
  for (const auto& row : nodes) {
    try {
      all.reports.push_back(asked.memory(row.description.id));
    } catch (const Error& error) {
      all.silent[row.description.name] = error.message();
    }
  }
  return all;
}

std::string pid_text(std::uint32_t pid) {
  return pid != 0 ? std::to_string(pid) : "-";
}

std::string user_text(const std::map<NodeId, std::string>& names,
                      const wire::MemoryHolder& holder) {
  std::string text(wire::name_of(holder.kind));
  if (holder.kind == MemoryUser::node) text = node_text(names, holder.node);
  if (holder.kind == MemoryUser::agent) text = "a value";
  if (holder.pid != 0) text += " " + std::to_string(holder.pid);
  return holder.refs == 1 ? text : text + " ×" + std::to_string(holder.refs);
}

/// Returns the bytes of extents that are in no object that the agent knows: objects that processes
/// have not shared, free space and holes.
std::uint64_t loose_bytes(const wire::MemoryReport& report) {
  const std::uint64_t used = report.ready_bytes + report.object_bytes;
  return report.extent_bytes - std::min(report.extent_bytes, used);
}

Json json_of(const Reports& all, const wire::MemoryReport& report, const MemoryObject& object,
             std::uint64_t after) {
  Json holders = Json::array();
  for (const auto& holder : object.holders)
    holders.push_back({{"kind", wire::name_of(holder.kind)},
                       {"pid", holder.pid},
                       {"node", holder.node ? node_text(all.names, holder.node) : ""},
                       {"refs", holder.refs},
                       {"silent_ns", holder.silent_ns}});
  const auto name = all.name_of.find(object.id);
  return {{"id", object.id ? object.id.str() : ""},
          {"detached", name != all.name_of.end()},
          {"name", name != all.name_of.end() ? name->second : ""},
          {"node", report.name},
          {"state", wire::name_of(object.state)},
          {"bytes", object.bytes},
          {"owner", node_text(all.names, object.owner)},
          {"maker_pid", object.maker_pid},
          {"made_at", object.site},
          {"job", object.job ? object.job.str() : ""},
          {"pins", object.pins},
          {"refs", object.held},
          {"age_ns", object.age_ns},
          {"unused_ns", object.unused_ns},
          {"holders", std::move(holders)},
          {"suspicion", suspicion(object, after)}};
}

Json json_of(const wire::MemoryProcess& process) {
  return {{"kind", wire::name_of(process.kind)},
          {"pid", process.pid},
          {"job", process.job ? process.job.str() : ""},
          {"silent_ns", process.silent_ns},
          {"extents", process.extents},
          {"extent_bytes", process.extent_bytes},
          {"objects", process.objects},
          {"object_bytes", process.object_bytes}};
}

Json json_of(const Reports& all, const wire::MemoryReport& report, std::uint64_t after) {
  Json processes = Json::array(), suspects = Json::array();
  Json jobs = Json::array(), sites = Json::array();
  for (const auto& site : report.sites)
    sites.push_back({{"made_at", site.text},
                     {"objects", site.objects},
                     {"object_bytes", site.bytes},
                     {"made", site.made},
                     {"grows", site.grows}});
  for (const auto& job : report.jobs)
    jobs.push_back({{"job", job.job ? job.job.str() : ""}, {"object_bytes", job.bytes}});
  for (const auto& process : report.processes) processes.push_back(json_of(process));
  for (const auto& object : report.rows)
    if (!suspicion(object, after).empty()) suspects.push_back(json_of(all, report, object, after));
  return {{"node", report.name},
          {"id", report.node.str()},
          {"arena_bytes", report.arena_bytes},
          {"extent_bytes", report.extent_bytes},
          {"ready_bytes", report.ready_bytes},
          {"object_bytes", report.object_bytes},
          {"loose_bytes", loose_bytes(report)},
          {"objects", report.objects},
          {"waiting_objects", report.waiting_objects},
          {"spills", report.spills},
          {"spilled",
           {{"objects", report.spilled},
            {"bytes", report.spilled_bytes},
            {"disk_bytes", report.disk_bytes},
            {"restored", report.restored},
            {"bad_folders", report.bad_folders}}},
          {"shared_copies",
           {{"used", report.copies},
            {"objects", report.copied},
            {"bytes", report.copy_bytes},
            {"errors", report.copy_errors}}},
          {"job_quota_bytes", report.job_quota_bytes},
          {"jobs", std::move(jobs)},
          {"sites", std::move(sites)},
          {"asks_waiting", report.asks_waiting},
          {"agent_extents",
           {{"holes", report.own_holes},
            {"free_bytes", report.own_free_bytes},
            {"largest_free_bytes", report.own_largest_free}}},
          {"refs", report.rows_in_all},
          {"processes", std::move(processes)},
          {"suspects", std::move(suspects)}};
}

std::string text_of(const wire::MemoryReport& report) {
  std::string text = visible_text(report.name, 80) + ": " +
                     size_text(report.extent_bytes - report.ready_bytes) + " of " +
                     size_text(report.arena_bytes) + " in use, " + size_text(report.object_bytes) +
                     " in " + std::to_string(report.objects) + " objects that processes share, " +
                     size_text(loose_bytes(report)) + " kept by one process, free or in holes\n  ";
  if (!report.spills) {
    text += "nothing is spilled: there is no folder for it\n";
  } else {
    text += std::to_string(report.spilled) + " objects (" + size_text(report.spilled_bytes) +
            ") are on disk, " + std::to_string(report.restored) + " were brought back so far\n";
    if (report.bad_folders != 0)
      text += "  " + std::to_string(report.bad_folders) +
              " spill folders failed too often and are left alone\n";
  }
  if (report.copies) {
    text += "  " + std::to_string(report.copied) + " objects (" + size_text(report.copy_bytes) +
            ") that other nodes hold have a copy in the shared folders";
    if (report.copy_errors != 0)
      text += ", which failed " + std::to_string(report.copy_errors) + " times";
    text += "\n";
  }
  for (const auto& job : report.jobs) {
    text += "  job " + (job.job ? job.job.str().substr(0, 8) : "that has ended") + ": " +
            size_text(job.bytes);
    if (report.job_quota_bytes != 0) text += " of " + size_text(report.job_quota_bytes);
    text += " of objects in memory and on disk\n";
  }
  if (report.waiting_objects != 0)
    text += "  " + std::to_string(report.waiting_objects) +
            " freed objects stay while somebody looks at them\n";
  if (report.asks_waiting != 0)
    text += "  " + std::to_string(report.asks_waiting) + " wait for memory\n";
  return text;
}

/// Lists the few places in programs whose objects take most bytes, and all places whose objects
/// become more and more.
std::string text_of_sites(const Reports& all) {
  constexpr std::size_t kMost = 10;
  std::vector<std::vector<std::string>> rows{
      {"NODE", "MADE AT", "OBJECTS", "SIZE", "EVER MADE", ""}};
  for (const auto& report : all.reports)
    for (std::size_t i = 0; i < report.sites.size(); ++i)
      if (const auto& site = report.sites[i]; i < kMost || site.grows)
        rows.push_back({report.name, site.text, std::to_string(site.objects), size_text(site.bytes),
                        std::to_string(site.made), site.grows ? "more and more: a leak?" : ""});
  return rows.size() == 1 ? "" : "\n" + table_text(rows);
}

std::string text_of_processes(const Reports& all) {
  std::vector<std::vector<std::string>> rows{
      {"NODE", "PROCESS", "PID", "EXTENTS", "OBJECTS", "SILENT", "JOB"}};
  for (const auto& report : all.reports)
    for (const auto& process : report.processes)
      rows.push_back(
          {report.name, std::string(wire::name_of(process.kind)), pid_text(process.pid),
           size_text(process.extent_bytes),
           std::to_string(process.objects) + " (" + size_text(process.object_bytes) + ")",
           process.pid != 0 ? age_text(process.silent_ns) : "-",
           process.job ? process.job.str().substr(0, 8) : "-"});
  return table_text(rows);
}

struct Listed {
  const wire::MemoryReport* report = nullptr;
  const MemoryObject* object = nullptr;
};

std::string text_of_suspects(const Reports& all, const std::vector<Listed>& objects,
                             std::uint64_t after) {
  std::vector<std::vector<std::string>> rows{{"OBJECT", "SIZE", "STATE", "NODE", "OWNER", "MAKER",
                                              "MADE AT", "REFS", "VIEWS", "AGE", "UNUSED", "WHY"}};
  for (const auto& [report, object] : objects) {
    const bool aged = object->age_ns != 0;
    rows.push_back({object->id ? object->id.str() : "-", size_text(object->bytes),
                    std::string(wire::name_of(object->state)), report->name,
                    node_text(all.names, object->owner), pid_text(object->maker_pid),
                    object->site.empty() ? "-" : object->site,
                    object->id ? std::to_string(object->held) : "-", std::to_string(object->pins),
                    aged ? age_text(object->age_ns) : "-", aged ? age_text(object->unused_ns) : "-",
                    suspicion(*object, after)});
  }
  return table_text(rows);
}

/// Returns all objects of all nodes, the largest first.
std::vector<Listed> listed(const Reports& all) {
  std::vector<Listed> objects;
  for (const auto& report : all.reports)
    for (const auto& object : report.rows) objects.push_back({&report, &object});
  std::stable_sort(objects.begin(), objects.end(), [](const Listed& a, const Listed& b) {
    return a.object->bytes > b.object->bytes;
  });
  return objects;
}

void print_silent(const Reports& all) {
  for (const auto& [name, why] : all.silent)
    std::fprintf(stderr, "troupe: %s\n", observe::missing_text({name, 0, why}, "objects").c_str());
}

std::uint64_t nanoseconds(double seconds) {
  return static_cast<std::uint64_t>(seconds * 1e9);
}

}  // namespace

std::string holders_text(const std::map<NodeId, std::string>& nodes, const std::string& name,
                         const MemoryObject& object) {
  if (object.holders.empty() && !object.id) return "whoever it was made for";
  std::string text = name.empty() ? "" : "its name '" + name + "'";
  for (const auto& holder : object.holders) {
    if (!text.empty() && holder.kind == MemoryUser::agent && holder.refs == 1) continue;
    text += (text.empty() ? "" : ", ") + user_text(nodes, holder);
  }
  return text.empty() ? "-" : text;
}

std::string suspicion(const MemoryObject& object, std::uint64_t after) {
  if (object.age_ns == 0 || object.age_ns < after || object.unused_ns < after) return {};
  if (object.pins != 0 || object.holders.empty()) return {};
  std::uint64_t silent = ~std::uint64_t{0};
  std::int64_t refs = 0;
  for (const auto& holder : object.holders) {
    const bool is_process = holder.kind == MemoryUser::driver ||
                            holder.kind == MemoryUser::worker || holder.kind == MemoryUser::actor;
    if (!is_process || holder.silent_ns < after) return {};
    silent = std::min(silent, holder.silent_ns);
    refs += holder.refs;
  }
  if (refs < object.held) return {};  // holders that are not listed have the rest
  const auto& first = object.holders.front();
  const std::string who = object.holders.size() == 1
                              ? std::string(wire::name_of(first.kind)) + " " + pid_text(first.pid)
                              : std::to_string(object.holders.size()) + " processes";
  return "unused for " + age_text(object.unused_ns) + ", held only by " + who + ", silent for " +
         age_text(silent);
}

Exit memory(const Request& request, double leak_after) {
  Asked asked(request);
  const Reports all = reports_of(asked);
  const std::uint64_t after = nanoseconds(leak_after);
  print_silent(all);
  if (request.json) {
    Json nodes = Json::array();
    for (const auto& report : all.reports) nodes.push_back(json_of(all, report, after));
    Json named = Json::object();
    for (const auto& row : all.named) named[row.name] = row.object.str();
    Json silent = Json::object();
    for (const auto& [name, why] : all.silent) silent[name] = why;
    print({{"nodes", std::move(nodes)},
           {"unreachable", std::move(silent)},
           {"detached", std::move(named)}});
    return all.silent.empty() ? Exit::ok : Exit::unreachable;
  }
  for (const auto& report : all.reports) std::printf("%s", text_of(report).c_str());
  std::printf("\n%s", text_of_processes(all).c_str());
  std::printf("%s", text_of_sites(all).c_str());
  if (!all.named.empty())
    std::printf("\n%zu object%s stay%s when the program that named %s has ended:\n%s",
                all.named.size(), all.named.size() == 1 ? "" : "s",
                all.named.size() == 1 ? "s" : "", all.named.size() == 1 ? "it" : "them",
                text_of_names(all.named, all.names).c_str());
  std::vector<Listed> suspects;
  for (const Listed& one : listed(all))
    if (!suspicion(*one.object, after).empty()) suspects.push_back(one);
  if (suspects.empty()) {
    std::printf("\nno object looks like a leak\n");
  } else {
    std::printf("\n%zu object%s may be leaked:\n%s", suspects.size(),
                suspects.size() == 1 ? "" : "s", text_of_suspects(all, suspects, after).c_str());
  }
  return all.silent.empty() ? Exit::ok : Exit::unreachable;
}

}  // namespace troupe::cli
