#include "troupe/runtime/client/reports.hpp"

#include "troupe/runtime/base/wall_clock.hpp"

#include <map>

namespace troupe::client {

void Reports::ask(const wire::AskRows& question, BlobView surroundings) {
  if (!report_)
    report_.emplace(static_cast<TaskReport::Out&>(*this), from_.self.job, from_.calls.tasks(),
                    from_.calls.actors(), from_.waits.threads(),
                    unix_nanoseconds() - steady_now().time_since_epoch().count());
  report_->ask(question, surroundings);
}

TaskReport::Out::Begun Reports::has_begun(ProcessIndex worker, const Task& task) {
  const Peers::Peer* peer = from_.peers.of(worker);
  if (peer == nullptr || peer->remote) return Begun::unknown;
  return from_.calls.may_come_back(worker, task.sequence) ? Begun::no : Begun::yes;
}

void Reports::each_awaited(const std::function<bool(const detail::ObjectHandle&)>& look_at) {
  if (!from_.work.is_busy()) from_.resumes.each_on_executor(look_at);
}

void Reports::each_own(const std::function<void(const Entry&, const std::string& site)>& look_at) {
  std::map<std::uint32_t, std::string> sites = from_.sites.texts();
  from_.values.objects().each_own(TaskReport::kMostOwn, [&](const Entry& entry) {
    look_at(entry, sites[static_cast<std::uint32_t>(entry.site)]);
  });
}

}  // namespace troupe::client
