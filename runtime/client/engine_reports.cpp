/// Questions of the agent about what this process knows alone.
#include "troupe/runtime/base/wall_clock.hpp"
#include "troupe/runtime/client/engine.hpp"
#include "troupe/runtime/client/task_report.hpp"

#include <map>
#include <string>

namespace troupe::client {

struct ClientEngine::Reports final : TaskReport::Out {
  explicit Reports(ClientEngine& e) : engine(e) {}
  void give(const wire::GiveRows& message, BlobView piece) override {
    engine.tell_agent(message, piece);
  }
  bool has_room() override { return engine.agent_.channel().waiting() == 0; }
  Begun has_begun(ProcessIndex worker, const Task& task) override {
    const Peer* peer = engine.peers_.of(worker);
    if (peer == nullptr || peer->remote) return Begun::unknown;
    return engine.calls_.may_come_back(worker, task.sequence) ? Begun::no : Begun::yes;
  }
  void each_awaited(const std::function<bool(const detail::ObjectHandle&)>& look_at) override {
    if (engine.callers_.work().is_busy()) return;
    engine.resumes_.each_on_executor(look_at);
  }
  void each_own(
      const std::function<void(const Entry&, const std::string& site)>& look_at) override {
    std::map<std::uint32_t, std::string> sites = engine.sites_.texts();
    engine.values_.objects().each_own(TaskReport::kMostOwn, [&](const Entry& entry) {
      look_at(entry, sites[static_cast<std::uint32_t>(entry.site)]);
    });
  }
  ClientEngine& engine;
  TaskReport report{*this,
                    engine.self_.job,
                    engine.calls_.tasks(),
                    engine.calls_.actors(),
                    engine.waits_.threads(),
                    unix_nanoseconds() - steady_now().time_since_epoch().count()};
};

void ClientEngine::ask_reports(const wire::AskRows& question, BlobView surroundings) {
  if (!reports_) reports_ = std::make_shared<Reports>(*this);
  reports_->report.ask(question, surroundings);
}

Time ClientEngine::step_reports(Time now) {
  return reports_->report.step(now);
}

}  // namespace troupe::client
