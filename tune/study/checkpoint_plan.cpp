#include "troupe/tune/study/checkpoint_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace troupe::tune {

using Why = CheckpointSave::Why;

std::string hash_text(std::uint64_t hash) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
  return text;
}

void CheckpointPlan::save(CheckpointSave wanted) {
  const std::string key = wanted.key;
  if (entries_.count(key) > 0) return;
  if (wanted.why == Why::best) {
    std::vector<std::string> older;
    for (const auto& [name, entry] : entries_)
      if (entry.state == State::waiting && entry.save.why == Why::best && !is_waited_for(name))
        older.push_back(name);
    for (const std::string& name : older) give_up(name);
  }
  const std::uint32_t trial = wanted.trial;
  entries_[key] = Entry{std::move(wanted), ++saves_, State::waiting};
  add_to(trial, key);
}

void CheckpointPlan::restored(const CheckpointSave& file) {
  entries_[file.key] = Entry{file, ++saves_, State::file};
  add_to(file.trial, file.key);
  changed_ = true;
}

void CheckpointPlan::written(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.state != State::writing) return;
  found->second.state = State::file;
  --writing_;
  changed_ = true;
}

void CheckpointPlan::lost(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  if (found->second.state == State::file) {
    dropping_.push_back(key);
    changed_ = true;
  } else {
    if (found->second.state == State::writing) --writing_;
    given_up_.push_back(key);
  }
  forget(key);
}

void CheckpointPlan::starts_from(std::uint32_t trial, const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  if (found->second.save.trial != trial) copied_.insert(key);
  add_to(trial, key);
  changed_ = true;
}

void CheckpointPlan::best(const std::string& key) {
  best_ = key;
  changed_ = true;
}

void CheckpointPlan::recorded() {
  const auto end = dropping_.begin() + static_cast<std::ptrdiff_t>(taken_);
  deletable_.insert(deletable_.end(), dropping_.begin(), end);
  dropping_.erase(dropping_.begin(), end);
  taken_ = 0;
}

std::optional<CheckpointSave> CheckpointPlan::next() {
  if (writing_ >= kMostAtOnce) return std::nullopt;
  Entry* first = nullptr;
  const auto rank = [this](const Entry& entry) {
    const bool waits = entry.save.why != Why::best || copied_.count(entry.save.key) > 0;
    return std::pair(waits ? 0 : 1, entry.order);
  };
  for (auto& [key, entry] : entries_)
    if (entry.state == State::waiting && (first == nullptr || rank(entry) < rank(*first)))
      first = &entry;
  if (first == nullptr) return std::nullopt;
  first->state = State::writing;
  ++writing_;
  return first->save;
}

std::vector<std::string> CheckpointPlan::take_given_up() {
  return std::exchange(given_up_, {});
}

std::vector<std::string> CheckpointPlan::take_drops() {
  if (changed_) {
    changed_ = false;
    const std::set<std::string> needs = needed();
    std::vector<std::string> unneeded;
    for (const auto& [key, entry] : entries_)
      if (entry.state == State::file && needs.count(key) == 0) unneeded.push_back(key);
    for (const std::string& key : unneeded) {
      dropping_.push_back(key);
      forget(key);
    }
  }
  taken_ = dropping_.size();
  return dropping_;
}

std::vector<std::string> CheckpointPlan::take_deletions() {
  return std::exchange(deletable_, {});
}

std::optional<CheckpointSave> CheckpointPlan::newest(std::uint32_t trial) const {
  const auto found = trials_.find(trial);
  if (found == trials_.end()) return std::nullopt;
  const auto& keys = found->second.keys;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key)
    if (is_file(*key)) return entries_.at(*key).save;
  return std::nullopt;
}

bool CheckpointPlan::is_file(const std::string& key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.state == State::file;
}

std::set<std::string> CheckpointPlan::needed() const {
  std::set<std::string> needs;
  if (is_file(best_)) needs.insert(best_);
  for (const auto& [number, trial] : trials_) {
    std::size_t files = 0;
    for (auto key = trial.keys.rbegin(); key != trial.keys.rend() && files < trial.most; ++key) {
      if (!is_file(*key)) continue;
      needs.insert(*key);
      ++files;
    }
  }
  return needs;
}

/// A trial that is over needs no save that waits, but its last one when that stays.
void CheckpointPlan::set_most(std::uint32_t number, std::size_t most) {
  Trial& trial = trials_[number];
  trial.most = most;
  changed_ = true;
  if (most > 0) return;
  std::vector<std::string> waiting;
  for (const std::string& key : trial.keys) {
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.state == State::waiting && !is_waited_for(key) &&
        key != best_)
      waiting.push_back(key);
  }
  for (const std::string& key : waiting) give_up(key);
  if (trials_[number].keys.empty()) trials_.erase(number);
}

void CheckpointPlan::add_to(std::uint32_t number, const std::string& key) {
  std::vector<std::string>& keys = trials_[number].keys;
  keys.erase(std::remove(keys.begin(), keys.end(), key), keys.end());
  keys.push_back(key);
}

void CheckpointPlan::forget(const std::string& key) {
  entries_.erase(key);
  copied_.erase(key);
  for (auto trial = trials_.begin(); trial != trials_.end();) {
    auto& keys = trial->second.keys;
    keys.erase(std::remove(keys.begin(), keys.end(), key), keys.end());
    trial = keys.empty() && trial->second.most == 0 ? trials_.erase(trial) : std::next(trial);
  }
}

void CheckpointPlan::give_up(const std::string& key) {
  given_up_.push_back(key);
  forget(key);
}

/// Returns whether a report, an end or a copy needs the file.
bool CheckpointPlan::is_waited_for(const std::string& key) const {
  const auto found = entries_.find(key);
  return copied_.count(key) > 0 || (found != entries_.end() && found->second.save.why == Why::end);
}

std::string why_not_all_fit(std::uint64_t bytes_of_one, std::uint64_t trials,
                            std::uint64_t free_bytes) {
  // Two files of each trial, and the best.
  const double needed = static_cast<double>(bytes_of_one) * (2.0 * static_cast<double>(trials) + 1);
  if (needed <= static_cast<double>(free_bytes)) return {};
  const auto mib = [](double bytes) {
    return std::to_string(static_cast<std::uint64_t>(bytes / 1048576)) + " MiB";
  };
  return "the checkpoints of " + std::to_string(trials) + " trials need " + mib(needed) + ", and " +
         mib(static_cast<double>(free_bytes)) +
         " are free: raise save_every, run fewer trials at a time, or make room";
}

}  // namespace troupe::tune
