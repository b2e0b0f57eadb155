// Tests ReferenceTable on one node against a model that knows which process can reach which
// object. Processes pass refs on, put them into values, name them, release them and die in any
// order. Objects that can be reached must be kept; all others must be freed, once.
#include "troupe/runtime/agent/reference_table.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <map>
#include <set>
#include <vector>

namespace troupe::agent::reference_table_model_test {
namespace {

constexpr std::uint64_t kProcesses = 4;  // 1 to 4; kSelf holds for a name

struct Recorder final : ReferenceTable::Out {
  std::multiset<std::uint64_t> freed;
  void ready(ProcessIndex, ObjectId, const wire::Value&, BlobView) override {}
  void free(const wire::Location& at) override { freed.insert(at.offset); }
  void unreferenced(ActorId) override {}
};

class Model {
 public:
  void make(std::uint64_t object, ProcessIndex holder, std::vector<std::uint64_t> inside) {
    inside_[object] = std::move(inside);
    ++counts_[holder][object];
  }
  void hold(std::uint64_t object, ProcessIndex holder, int delta) {
    if ((counts_[holder][object] += delta) == 0) counts_[holder].erase(object);
  }
  void died(ProcessIndex process) { counts_.erase(process); }
  std::vector<std::uint64_t> held_by(ProcessIndex process) {
    std::vector<std::uint64_t> held;
    for (const auto& [object, count] : counts_[process]) held.push_back(object);
    return held;
  }
  /// Returns the objects that no process can reach.
  std::multiset<std::uint64_t> gone() const {
    std::set<std::uint64_t> reached;
    std::vector<std::uint64_t> left;
    for (const auto& [process, held] : counts_)
      for (const auto& [object, count] : held) left.push_back(object);
    while (!left.empty()) {
      const std::uint64_t object = left.back();
      left.pop_back();
      if (!reached.insert(object).second) continue;
      const auto& inside = inside_.at(object);
      left.insert(left.end(), inside.begin(), inside.end());
    }
    std::multiset<std::uint64_t> gone;
    for (const auto& [object, inside] : inside_)
      if (reached.count(object) == 0) gone.insert(object);
    return gone;
  }

 private:
  std::map<std::uint64_t, std::vector<std::uint64_t>> inside_;
  std::map<ProcessIndex, std::map<std::uint64_t, int>> counts_;
};

ObjectId id_of(std::uint64_t object) {
  return {1, object};
}

TEST(ReferencesModel, WhatCanBeReachedIsKeptAndTheRestIsFreedOnce) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint32_t>& steps) {
    Recorder out;
    ReferenceTable references(out);
    Model model;
    std::uint64_t last = 0;
    std::set<ProcessIndex> dead;
    const Error reason(Code::worker_died, "killed");
    for (const std::uint32_t step : steps) {
      const std::uint32_t value = step / 16;
      const ProcessIndex process = ProcessIndex::of(1 + value % kProcesses);
      const ProcessIndex other = ProcessIndex::of(1 + value / 4 % kProcesses);
      if (dead.count(process) != 0) continue;
      const std::vector<std::uint64_t> held = model.held_by(process);
      const std::uint64_t one = held.empty() ? 0 : held[value / 16 % held.size()];
      if (step % 16 < 5) {
        wire::Value made;
        made.kind = wire::Value::Kind::shared;
        made.location.offset = ++last;
        std::vector<std::uint64_t> inside;
        for (const std::uint64_t object : held)
          if ((value >> (object % 16) & 1) != 0) inside.push_back(object);
        for (const std::uint64_t object : inside) made.refs.push_back(id_of(object));
        references.promote(process, id_of(last), made, {});
        model.make(last, process, inside);
      } else if (step % 16 < 8 && one != 0 && dead.count(other) == 0) {
        references.hold(id_of(one), other, +1);
        model.hold(one, other, +1);
      } else if (step % 16 == 8 && one != 0) {  // a name
        references.hold(id_of(one), kSelf, +1);
        model.hold(one, kSelf, +1);
      } else if (step % 16 == 9) {
        for (const std::uint64_t object : model.held_by(kSelf)) {
          references.hold(id_of(object), kSelf, -1);
          model.hold(object, kSelf, -1);
        }
      } else if (step % 16 < 14 && one != 0) {
        references.hold(id_of(one), process, -1);
        model.hold(one, process, -1);
      } else if (step % 16 == 14) {
        references.process_died(process, reason);
        model.died(process);
        dead.insert(process);
      } else {
        while (references.settle()) {
        }
        RC_ASSERT(out.freed == model.gone());
      }
      // No object is freed too early.
      for (const std::uint64_t object : out.freed) RC_ASSERT(model.gone().count(object) == 1u);
    }
    while (references.settle()) {
    }
    RC_ASSERT(out.freed == model.gone());
    RC_ASSERT(references.size() == last - out.freed.size());
  }));
}

}  // namespace
}  // namespace troupe::agent::reference_table_model_test
