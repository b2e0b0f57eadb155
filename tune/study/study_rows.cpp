#include "troupe/tune/study/study_rows.hpp"

#include "troupe/runtime/storage/database.hpp"
#include "troupe/tune/study/internal/store_check.hpp"
#include "troupe/tune/study/internal/store_keys.hpp"

namespace troupe::tune {

using namespace internal;

Result<std::optional<std::string>> StudyRows::get(const std::string& key) const {
  std::optional<std::string> value;
  const auto status = db_->get(key, value);
  if (!status.ok()) return error_of(status, "read", folder_);
  return value;
}

Result<void> StudyRows::scan_numbers(const std::string& prefix, std::size_t width,
                                     std::uint64_t first, Order order,
                                     const VisitNumber& visit) const {
  const auto direction = order == Order::rising ? storage::Direction::up : storage::Direction::down;
  const auto status = db_->scan_range(prefix + big_endian(first, width), end_of(prefix), direction,
                                      [&](std::string_view key, std::string_view value) {
                                        return visit(number_in(key.substr(prefix.size())), value);
                                      });
  if (!status.ok()) return error_of(status, "read", folder_);
  return {};
}

Result<std::optional<std::string>> StudyRows::meta() const {
  return get(kMetaKey);
}

Result<void> StudyRows::events(std::uint64_t first, const VisitNumber& visit) const {
  return scan_numbers(kEvents, kEventWidth, first, Order::rising, visit);
}

Result<void> StudyRows::trials(std::uint32_t first, const VisitNumber& visit, Order order) const {
  return scan_numbers(kTrials, kTrialWidth, first, order, visit);
}

Result<std::optional<std::string>> StudyRows::trial(std::uint32_t number) const {
  return get(trial_key(number));
}

Result<void> StudyRows::reports(std::uint32_t trial, const VisitNumber& visit) const {
  return scan_numbers(reports_of(trial), kStepWidth, 0, Order::rising, visit);
}

Result<void> StudyRows::checkpoints(const VisitName& visit) const {
  const std::string prefix = kCheckpoints;
  const auto status = db_->scan_range(prefix, end_of(prefix), storage::Direction::up,
                                      [&](std::string_view key, std::string_view value) {
                                        return visit(key.substr(prefix.size()), value);
                                      });
  if (!status.ok()) return error_of(status, "read", folder_);
  return {};
}

Result<std::optional<std::string>> StudyRows::client(const std::string& name) const {
  return get(kClients + name);
}

Result<std::optional<std::string>> StudyRows::exporter(const std::string& name) const {
  return get(kExporters + name);
}

Result<std::uint64_t> StudyRows::last_event() const {
  std::uint64_t last = 0;
  const auto done = scan_numbers(kEvents, kEventWidth, 0, Order::falling,
                                 [&](std::uint64_t number, std::string_view) {
                                   last = number;
                                   return false;
                                 });
  if (!done) return done.error();
  return last;
}

}  // namespace troupe::tune
