// The rounds of the chaos program. A round starts a cluster and a load, injects faults one after
// the other, and ends the cluster. After each fault, all parts must work again and untouched
// nodes must live. After each round, the ledger must show no call twice or out of order, and
// nothing may be left behind.
#include "tests/chaos/chaos.hpp"

#include "tests/chaos/ledger.hpp"

#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace chaos {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr auto kLeavesNothing = 5s;
constexpr int kFaultsOfARound = 40;

}  // namespace

Chaos::Chaos(Options options)
    : options_(std::move(options)), random_(options_.seed), busy_cpus_(options_.busy) {
  const char* temporary = std::getenv("TMPDIR");
  std::string pattern = std::string(temporary != nullptr ? temporary : "/tmp") + "/chaos-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for this run");
  folder_ = pattern;
  page_ = map_page((folder_ + "/page").c_str(), true);
  if (page_ == nullptr) throw std::runtime_error("no memory for this run");
  if (!options_.shim.empty()) proxy_ = std::make_unique<Proxy>(*page_);
}

Chaos::~Chaos() {
  driver_.reset();
  cluster_.reset();
  for (int i = 0; i < 100; ++i) {
    const auto left = descendants();
    if (left.empty()) break;
    for (const Process& process : left) hit(process.pid);
    std::this_thread::sleep_for(10ms);
  }
  if (on_tmpfs_) ::umount2(data_.c_str(), MNT_DETACH);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<std::string> Chaos::kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : all_kinds()) names.emplace_back(kind.name);
  return names;
}

int Chaos::run() {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(options_.minutes * 60));
  try {
    while (Clock::now() < until && (options_.rounds == 0 || rounds_ < options_.rounds)) {
      begin_round();
      const Kind* how = nullptr;
      while (has_time(until) && !is_over()) {
        const Kind* kind = next_kind();
        if (kind->round) {
          how = kind;
          break;
        }
        try {
          one_fault(*kind);
          sleep(std::chrono::milliseconds(50 + random_() % 150));
        } catch (const std::exception& error) {  // the cluster cannot be used any more
          bad(kind->name, "lost", error.what());
          how = kind_named("everything_killed");
          break;
        }
      }
      if (!end_round(how)) break;
    }
  } catch (const std::exception& error) {
    bad("start", "lost", error.what());
  }
  return report();
}

void Chaos::begin_round() {
  ++rounds_;
  ledger_ = folder_ + "/ledger-" + std::to_string(rounds_);
  data_ = folder_ + "/data-" + std::to_string(rounds_);
  fs::create_directory(data_);
  fs::permissions(data_, fs::perms::owner_all);
  // The data folder gets a small disk of its own, if this user may mount one.
  on_tmpfs_ = ::mount("tmpfs", data_.c_str(), "tmpfs", 0, "size=256m,mode=0700") == 0;
  Setup setup;
  setup.command = options_.command;
  setup.folder = folder_;
  setup.shim = options_.shim;
  setup.page = folder_ + "/page";
  cluster_ = std::make_unique<Cluster>(setup, data_);
  cluster_->start(options_.nodes);
  control_kills_.clear();
  faults_ = drivers_of_round_ = 0;
  before_ = {};
  round_begun_ = Clock::now();
  new_driver();
}

/// Returns whether the run goes on. A short run on a busy machine continues until one fault has
/// taken effect.
bool Chaos::has_time(Clock::time_point until) const {
  const auto now = Clock::now();
  return now < until || (now < until + std::chrono::seconds(30) &&
                         std::all_of(
                             rows_.begin(), rows_.end(),
                             [](const auto& row) { return row.second.injected == 0; }));
}

bool Chaos::is_over() const {
  return faults_ >= kFaultsOfARound || cluster_->tokens() < 2;
}

void Chaos::new_driver() {
  driver_ = std::make_unique<Driver>(options_.program, cluster_->nodes().front().file, ledger_,
                                     options_.seed * 1000 + static_cast<std::uint64_t>(++drivers_),
                                     options_.canary, folder_ + "/load.log");
  ++drivers_of_round_;
  if (!driver_->ready(20s)) throw std::runtime_error("the load did not start");
}

const Chaos::Kind* Chaos::kind_named(const std::string& name) {
  return &*std::find_if(all_kinds().begin(), all_kinds().end(),
                        [&](const Kind& kind) { return kind.name == name; });
}

const Chaos::Kind* Chaos::next_kind() {
  for (;;) {
    if (bag_.empty()) {
      for (const Kind& kind : all_kinds())
        if (options_.only.empty() ||
            std::find(options_.only.begin(), options_.only.end(), kind.name) != options_.only.end())
          bag_.push_back(&kind);
      std::shuffle(bag_.begin(), bag_.end(), random_);
    }
    const Kind* kind = bag_.back();
    bag_.pop_back();
    if (rows_[kind->name].skipped.empty()) return kind;
    const bool any = std::any_of(all_kinds().begin(), all_kinds().end(), [&](const Kind& other) {
      return rows_[other.name].skipped.empty() &&
             (options_.only.empty() || std::find(options_.only.begin(), options_.only.end(),
                                                 other.name) != options_.only.end());
    });
    if (!any) throw std::runtime_error("none of these kinds of fault can be injected here");
  }
}

void Chaos::one_fault(const Kind& kind) {
  Row& row = rows_[kind.name];
  ++faults_;
  for (Node& node : cluster_->nodes()) node.stays = true;
  const Work work = driver_->work();
  if (kind.risky) driver_->say("risk");
  if (options_.verbose)
    std::fprintf(stderr, "chaos: %6.1f s %s\n", ms_since(begun_) / 1000, kind.name);
  const Effect effect = (this->*kind.inject)();
  if (!effect) {
    ++row.missed;
  } else {
    ++row.injected;
    std::optional<double> recovery;
    if (effect->new_driver) {
      before_ += driver_->work();
      take_bad(kind.name);
      new_driver();
    }
    driver_->mark(++marks_, effect->at);
    recovery = driver_->recovered(marks_, std::chrono::seconds(options_.bound));
    if (recovery)
      row.recovery.push_back(*recovery);
    else
      bad(kind.name, "hung",
          "not everything worked again within " + std::to_string(options_.bound) + " s");
    if (options_.verbose && recovery)
      std::fprintf(stderr, "chaos:          %s recovered after %.0f ms\n", kind.name, *recovery);
    if (!recovery && !is_alive(driver_->pid())) new_driver();
  }
  if (kind.risky) driver_->say("calm");
  check_bystanders(kind.name);
  driver_->listen();
  if (!effect || !effect->new_driver) row.work += driver_->work() - work;
  take_bad(kind.name);
  restore_nodes(kind.name);
}

void Chaos::check_bystanders(const std::string& kind) {
  for (const Node& node : cluster_->nodes())
    if (node.stays && !is_alive(node.agent))
      bad(kind, "lost", node.name + " ended, to which nothing was done");
}

/// Replaces dead nodes and waits until control hears every node. Without the wait, the next fault
/// could find a node that was silent for long, and control would declare it dead although nothing
/// was done to it.
void Chaos::restore_nodes(const std::string& kind) {
  cluster_->forget_dead();
  while (static_cast<int>(cluster_->nodes().size()) < options_.nodes && cluster_->add_node()) {
  }
  if (!within(std::chrono::seconds(options_.bound), [&] { return cluster_->is_whole(); }))
    bad(kind, "hung",
        "control does not hear just these nodes after " + std::to_string(options_.bound) + " s");
}

void Chaos::take_bad(const std::string& kind) {
  for (const Bad& one : driver_->take_bad()) bad(kind, one.what, one.text);
}

void Chaos::bad(const std::string& kind, const std::string& what, const std::string& text) {
  Row& row = rows_[kind];
  (what == "duplicated" ? row.duplicated
   : what == "hung"     ? row.hung
   : what == "wrong"    ? row.wrong
                        : row.lost)++;
  messages_.push_back(kind + ": " + what + ": " + text);
  std::fprintf(stderr, "chaos: %6.1f s %s\n", ms_since(begun_) / 1000, messages_.back().c_str());
}

/// Reports the calls of this round that ran twice or out of order.
void Chaos::audit(const std::string& kind) {
  const Audit audit = audit_of(ledger_);
  for (const std::string& text : audit.twice) bad(kind, "duplicated", text);
  for (const std::string& text : audit.out_of_order) bad(kind, "wrong", text);
}

bool Chaos::end_round(const Kind* how) {
  const std::string name = how != nullptr ? how->name : "end";
  if (how == nullptr) how = kind_named("everything_ended");
  if (is_alive(driver_->pid())) sleep(500ms);  // some load in any case
  load_seconds_ += ms_since(round_begun_) / 1000;
  const Effect effect = (this->*how->inject)();
  Row& row = rows_[name];
  if (effect) {
    ++row.injected;
    expect_nothing_left(name, effect->at);
    row.recovery.push_back(ms_since(effect->at));
  } else {
    ++row.missed;
  }
  take_bad(name);
  before_ += driver_->work();
  row.work += {};
  total_ += before_;
  audit(name);
  driver_.reset();
  cluster_.reset();
  if (on_tmpfs_) ::umount2(data_.c_str(), MNT_DETACH);
  on_tmpfs_ = false;
  fs::remove_all(data_);
  return true;
}

void Chaos::expect_nothing_left(const std::string& kind, Clock::time_point since) {
  std::string left;
  const bool clean = within(kLeavesNothing, [&] {
    left.clear();
    for (const Process& process : descendants())
      left += " " + process.name + "(" + std::to_string(process.pid) + ")";
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);)
      if (line.find(cluster_->id()) != std::string::npos) left += " socket" + line;
    return left.empty();
  });
  (void)since;
  if (!clean) bad(kind, "lost", "left after 5 s:" + left);
  for (const Process& process : descendants()) hit(process.pid);
}

void Chaos::sleep(std::chrono::milliseconds time) {
  const auto until = Clock::now() + time;
  while (Clock::now() < until) {
    driver_->listen();
    std::this_thread::sleep_for(5ms);
  }
}

}  // namespace chaos
