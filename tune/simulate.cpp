#include "troupe/tune/simulate.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>

namespace troupe::tune {
namespace {

/// Returns the time so many seconds later, or Time::max() if that is beyond 100 years.
Time later(Time from, double seconds) {
  constexpr Time kEnd = Time{} + std::chrono::hours(24 * 365 * 100);
  if (!(seconds < std::chrono::duration<double>(kEnd - from).count())) return Time::max();
  return from + Duration(static_cast<std::int64_t>(std::max(seconds, 0.0) * 1e9));
}

/// Hashes the bytes of the weights with FNV-1a.
std::string hash_of(const std::vector<double>& weights) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const double w : weights) {
    unsigned char bytes[sizeof w];
    std::memcpy(bytes, &w, sizeof w);
    for (const unsigned char b : bytes) hash = (hash ^ b) * 0x100000001b3ULL;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace

Simulator::Simulator(Experiment& experiment, Simulation simulation)
    : experiment_(experiment), simulation_(std::move(simulation)) {}

void Simulator::at(Time when, What what, int trial, Checkpoint checkpoint, std::string error) {
  if (when == Time::max()) return;
  pending_.push({when, order_++, what, trial, attempts_[trial].number, std::move(checkpoint),
                 std::move(error)});
}

void Simulator::next_step(int trial) {
  Attempt& a = attempts_[trial];
  const Time from = std::max(now_, a.busy_until);
  if (simulation_.fault) {
    const std::string error = simulation_.fault(trial, a.number, a.step + 1);
    if (!error.empty()) return at(from, What::ended, trial, {}, error);
  }
  const double cost =
      simulation_.step_seconds ? simulation_.step_seconds(a.params, a.step + 1) : 1.0;
  at(later(from, cost), What::report, trial);
}

void Simulator::begin(const Start& start) {
  starts_.push_back(start);
  Attempt& a = attempts_[start.trial];
  a = {start.attempt, start.params, simulation_.weights, 0, true, now_, {}};
  if (start.from) {
    const std::vector<double>* weights = nullptr;
    if (const auto found = stored_.find(start.from->key); found != stored_.end())
      weights = &found->second;
    if (weights == nullptr && store_ != nullptr) {
      const auto found = store_->files.find(start.from->key);
      if (found != store_->files.end()) weights = &found->second;
    }
    if (weights == nullptr) {
      ++without_weights_;
      return at(now_, What::ended, start.trial, {}, "checkpoint " + start.from->key + " is lost");
    }
    a.weights = *weights;
    a.step = start.from->step;
    at(now_, What::restored, start.trial, {"", hash_of(a.weights), 0, a.step});
  }
  next_step(start.trial);
}

void Simulator::keep(SimulatedStore& store) {
  store_ = &store;
  experiment_.with_store();
}

/// Writes what the last inputs changed, before their commands are carried out.
void Simulator::write() {
  if (store_ == nullptr) {
    for (std::string& line : experiment_.take_log()) log_.push_back(std::move(line));
    return;
  }
  StudyBatch batch = experiment_.take_batch();
  if (batch.empty()) return;
  if (batch.meta) store_->meta = *batch.meta;
  store_->events.insert(store_->events.end(), batch.events.begin(), batch.events.end());
  for (const TrialRow& row : batch.trials) store_->trials[row.trial] = row.json;
  for (const CheckpointRow& row : batch.checkpoints) {
    if (row.json) {
      store_->checkpoints[row.key] = *row.json;
    } else {
      store_->checkpoints.erase(row.key);
    }
  }
  if (store_->written) store_->written(batch);
}

void Simulator::carry_out(const Command& command) {
  if (const auto* start = std::get_if<Start>(&command)) {
    begin(*start);
  } else if (const auto* save = std::get_if<Save>(&command)) {
    Attempt& a = attempts_[save->trial];
    const std::string key = "trial" + std::to_string(save->trial) + "-" + std::to_string(a.number) +
                            "-" + std::to_string(a.step);
    a.saving = a.weights;
    a.busy_until = later(now_, simulation_.save_seconds);
    at(a.busy_until, What::saved, save->trial,
       {key, hash_of(a.weights), a.weights.size() * sizeof(double), a.step});
  } else if (const auto* reply = std::get_if<Reply>(&command)) {
    replies_ += reply->go_on;
    if (reply->go_on || !simulation_.obeys) return next_step(reply->trial);
    at(std::max(now_, attempts_[reply->trial].busy_until), What::ended, reply->trial);
  } else if (const auto* kill = std::get_if<Kill>(&command)) {
    at(now_, What::ended, kill->trial, {}, "killed");
  } else if (const auto* drop = std::get_if<Drop>(&command)) {
    stored_.erase(drop->checkpoint.key);
    if (store_ != nullptr) store_->files.erase(drop->checkpoint.key);
  }
}

void Simulator::happen(const Pending& p) {
  if (p.what == What::stored) {
    const auto found = stored_.find(p.checkpoint.key);
    if (found == stored_.end()) return;  // dropped before it was written
    store_->files[p.checkpoint.key] = found->second;
    return experiment_.stored(p.checkpoint.key, now_);
  }
  Attempt& a = attempts_[p.trial];
  if (!a.alive || a.number != p.attempt) return;
  switch (p.what) {
    case What::restored: return experiment_.restored(p.trial, p.attempt, p.checkpoint.hash, now_);
    case What::saved:
      stored_[p.checkpoint.key] = a.saving;
      if (store_ != nullptr) store_->saved_with[p.checkpoint.key] = a.params;
      if (store_ != nullptr) {
        writer_free_ = later(std::max(now_, writer_free_), simulation_.file_seconds);
        pending_.push({writer_free_, order_++, What::stored, -1, 0, p.checkpoint, {}});
      }
      return experiment_.saved(p.trial, p.attempt, p.checkpoint, now_);
    case What::ended: a.alive = false; return experiment_.ended(p.trial, p.attempt, p.error, now_);
    case What::stored:
    case What::report: break;
  }
  ++a.step;
  TrialReport report;
  report.step = a.step;
  report.score = simulation_.train(a.weights, a.params, a.step);
  report.can_save = simulation_.can_save;
  experiment_.reported(p.trial, p.attempt, report, now_);
}

void Simulator::run(std::size_t events) {
  if (!std::exchange(begun_, true)) {
    if (store_ != nullptr)
      std::erase_if(store_->files,
                    [this](const auto& file) { return !experiment_.needs(file.first); });
    experiment_.interrupted(now_);
  }
  for (std::size_t n = 0;; ++n) {
    write();
    for (const Command& c : experiment_.take_commands()) carry_out(c);
    if (experiment_.over() || n >= events) return;
    const std::optional<Time> due = experiment_.next_tick();
    if (due && (pending_.empty() || *due <= pending_.top().at)) {
      now_ = std::max(now_, *due);
      experiment_.tick(now_);
      continue;
    }
    if (pending_.empty()) {
      throw InvalidArgument(Code::invalid_argument, "tune: the simulated experiment is stuck");
    }
    const Pending next = pending_.top();
    pending_.pop();
    now_ = next.at;
    experiment_.tick(now_);
    happen(next);
  }
}

}  // namespace troupe::tune
