/// The contents of a study's store, to read. StudyStore and StudyReader have them.
///
///     rows.events(1, [&](std::uint64_t number, std::string_view json) { …; return true; });
///     std::optional<std::string> row = rows.trial(7).value();
///
/// Copies are cheap, and each keeps the store open and its folder owned. All functions block on the
/// disk and are thread-safe. Their errors are InvalidArgument for a damaged store, with file and
/// offset, and Unavailable.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/study/study_batch.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::storage {
class Database;
struct Status;
}  // namespace troupe::storage

namespace troupe::tune {

class TROUPE_API StudyRows {
 public:
  /// Return whether to go on.
  using VisitNumber = std::function<bool(std::uint64_t number, std::string_view json)>;
  using VisitName = std::function<bool(std::string_view name, std::string_view json)>;
  enum class Order : std::uint8_t { rising, falling };

  StudyRows() noexcept = default;
  /// `folder` is the study's, for messages.
  StudyRows(std::shared_ptr<storage::Database> db, std::string folder)
      : db_(std::move(db)), folder_(std::move(folder)) {}

  /// The study's description; nothing before the first batch with one.
  Result<std::optional<std::string>> meta() const;
  /// Visits the events from `first` on.
  Result<void> events(std::uint64_t first, const VisitNumber& visit) const;
  Result<void> trials(std::uint32_t first, const VisitNumber& visit,
                      Order order = Order::rising) const;
  Result<std::optional<std::string>> trial(std::uint32_t number) const;
  /// Visits a trial's reports by step.
  Result<void> reports(std::uint32_t trial, const VisitNumber& visit) const;
  /// Visits the rows of stored checkpoints by key.
  Result<void> checkpoints(const VisitName& visit) const;
  Result<std::optional<std::string>> client(const std::string& name) const;
  Result<std::optional<std::string>> exporter(const std::string& name) const;
  /// Returns the number of the last event; 0: none.
  Result<std::uint64_t> last_event() const;

 private:
  Result<std::optional<std::string>> get(const std::string& key) const;
  Result<void> scan_numbers(const std::string& prefix, std::size_t width, std::uint64_t first,
                            Order order, const VisitNumber& visit) const;

  std::shared_ptr<storage::Database> db_;
  std::string folder_;
};

}  // namespace troupe::tune
