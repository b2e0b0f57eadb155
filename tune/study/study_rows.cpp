#include "troupe/tune/study/study_rows.hpp"

#include "troupe/runtime/storage/database.hpp"
#include "troupe/tune/study/internal/store_check.hpp"
#include "troupe/tune/study/internal/store_keys.hpp"

namespace troupe::tune {

Result<std::optional<std::string>> StudyRows::get(const std::string& key) const {
  std::optional<std::string> value;
  const auto status = db_->get(key, value);
  if (!status.ok()) return internal::error_of(status, "read", folder_);
  return value;
}

Result<void> StudyRows::scan_numbers(const std::string& prefix, std::size_t width,
                                     std::uint64_t first, Order order,
                                     const VisitNumber& visit) const {
  const auto direction = order == Order::rising ? storage::Direction::up : storage::Direction::down;
  const auto status =
      db_->scan_range(prefix + internal::big_endian(first, width), internal::end_of(prefix),
                      direction, [&](std::string_view key, std::string_view value) {
                        return visit(internal::number_in(key.substr(prefix.size())), value);
                      });
  if (!status.ok()) return internal::error_of(status, "read", folder_);
  return {};
}

Result<std::optional<std::string>> StudyRows::meta() const {
  return get(internal::kMetaKey);
}

Result<void> StudyRows::events(std::uint64_t first, const VisitNumber& visit) const {
  return scan_numbers(internal::kEvents, internal::kEventWidth, first, Order::rising, visit);
}

Result<void> StudyRows::trials(std::uint32_t first, const VisitNumber& visit, Order order) const {
  return scan_numbers(internal::kTrials, internal::kTrialWidth, first, order, visit);
}

Result<std::optional<std::string>> StudyRows::trial(std::uint32_t number) const {
  return get(internal::trial_key(number));
}

Result<void> StudyRows::reports(std::uint32_t trial, const VisitNumber& visit) const {
  return scan_numbers(internal::reports_of(trial), internal::kStepWidth, 0, Order::rising, visit);
}

Result<void> StudyRows::checkpoints(const VisitName& visit) const {
  const std::string prefix = internal::kCheckpoints;
  const auto status = db_->scan_range(prefix, internal::end_of(prefix), storage::Direction::up,
                                      [&](std::string_view key, std::string_view value) {
                                        return visit(key.substr(prefix.size()), value);
                                      });
  if (!status.ok()) return internal::error_of(status, "read", folder_);
  return {};
}

Result<std::optional<std::string>> StudyRows::client(const std::string& name) const {
  return get(internal::kClients + name);
}

Result<std::optional<std::string>> StudyRows::exporter(const std::string& name) const {
  return get(internal::kExporters + name);
}

Result<std::uint64_t> StudyRows::last_event() const {
  std::uint64_t last = 0;
  const auto done = scan_numbers(internal::kEvents, internal::kEventWidth, 0, Order::falling,
                                 [&](std::uint64_t number, std::string_view) {
                                   last = number;
                                   return false;
                                 });
  if (!done) return done.error();
  return last;
}

}  // namespace troupe::tune
