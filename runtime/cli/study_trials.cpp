/// The verb `troupe tune trials`: the trials of a study that a filter picks, in an order.
#include "troupe/runtime/base/where.hpp"
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/internal/study.hpp"
#include "troupe/runtime/cli/verbs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {
namespace {

/// Where in a row the value of a field stands.
struct Place {
  std::string group;  ///< params or metrics; empty: the row itself
  std::string name;
};

/// The fields that a filter may name: the columns, the parameters and the metrics.
class TrialFields {
 public:
  TrialFields() {
    add("", "number", FieldKind::number);
    for (const char* name : {"state", "note"}) add("", name, FieldKind::text);
    for (const char* name :
         {"attempt", "failures", "step", "score", "reports", "copies", "created", "seconds"})
      add("", name, FieldKind::number);
  }
  /// Adds the parameters of a study's description, and the score by its name. A field that is there
  /// stays.
  void add_description(const Json& meta) {
    const Json* space = meta.find("space");
    if (space != nullptr && space->as_array() != nullptr)
      for (const Json& parameter : *space->as_array())
        if (const Json* name = parameter.find("name");
            name != nullptr && name->as_text() != nullptr)
          add("params", *name->as_text(), FieldKind::any);
    if (meta.find("metric") != nullptr)
      add("", text_in(meta, "metric"), FieldKind::number, "score");
  }
  void add_row(const Json& row) {
    for (const char* group : {"params", "metrics"}) {
      const Json* values = row.find(group);
      if (values == nullptr || values->as_object() == nullptr) continue;
      for (const Json::Field& field : *values->as_object()) add(group, field.name, FieldKind::any);
    }
  }
  const std::vector<WhereField>& list() const noexcept { return fields_; }

  FieldValue value_of(const StudyRow& row, std::size_t field) const {
    if (field == 0) return static_cast<double>(row.number);
    const Place& place = places_[field];
    const Json* in = place.group.empty() ? &row.json : row.json.find(place.group);
    const Json* value = in != nullptr ? in->find(place.name) : nullptr;
    if (value == nullptr) return {};
    if (const auto number = value->as_number()) return *number;
    const std::string* text = value->as_text();
    if (text == nullptr) return {};
    if (fields_[field].kind != FieldKind::text && (*text == "inf" || *text == "-inf"))
      return *text == "inf" ? HUGE_VAL : -HUGE_VAL;
    return std::string_view(*text);
  }

 private:
  /// `in_row`: the name in the row; empty: the same.
  void add(const std::string& group, const std::string& name, FieldKind kind,
           const std::string& in_row = {}) {
    const bool known = std::any_of(fields_.begin(), fields_.end(),
                                   [&name](const WhereField& field) { return field.name == name; });
    if (known) return;
    fields_.push_back({name, kind});
    places_.push_back({group, in_row.empty() ? name : in_row});
  }

  std::vector<WhereField> fields_;
  std::vector<Place> places_;
};

template <class T>
T parsed_option(const char* flag, Result<T> result) {
  if (result) return std::move(*result);
  throw_usage(std::string(flag) + ": " + result.error().message());
}

/// Picks rows one by one, and keeps at most about twice as many as are wanted.
class TrialPicker {
 public:
  /// `--sort score` alone puts the best trial first: the one with the least score if `least_best`.
  TrialPicker(const StudyRequest& request, const TrialFields& fields, bool least_best)
      : fields_(fields),
        most_(request.limit),
        where_(parsed_option("--where", Where::parse(request.where, fields.list()))) {
    if (request.sort.empty()) return;
    const bool by_score = request.sort == "score" && least_best;
    order_ = parsed_option("--sort",
                           SortBy::parse(by_score ? "score:asc" : request.sort, fields.list()));
  }

  void take(StudyRow row) {
    if (!where_.matches([&](std::size_t field) { return fields_.value_of(row, field); })) return;
    ++matched_;
    if (!order_ && rows_.size() >= most_) return;
    rows_.push_back(std::move(row));
    if (rows_.size() >= 2 * most_ + kSpare) trim();
  }
  std::uint64_t matched() const noexcept { return matched_; }
  std::vector<StudyRow> rows() && {
    trim();
    return std::move(rows_);
  }

 private:
  static constexpr std::size_t kSpare = 1000;

  void trim() {
    if (order_)
      std::sort(rows_.begin(), rows_.end(), [this](const StudyRow& a, const StudyRow& b) {
        const std::size_t field = order_->field();
        const int order = order_->compare(fields_.value_of(a, field), fields_.value_of(b, field));
        return order != 0 ? order < 0 : a.number < b.number;
      });
    if (rows_.size() > most_)
      rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(most_), rows_.end());
  }

  const TrialFields& fields_;
  std::size_t most_;
  Where where_;
  std::optional<SortBy> order_;
  std::vector<StudyRow> rows_;
  std::uint64_t matched_ = 0;
};

/// Rows whose parameters and metrics are looked at before the filter is read.
constexpr std::size_t kEarlyRows = 1000;

struct PickedTrials {
  std::vector<StudyRow> rows;
  std::uint64_t matched = 0;
};

/// Reads the rows. The study is closed on return: a pager may show them for long, and a program that
/// wants to own the study waits for a reader.
PickedTrials pick_trials(const StudyRequest& request) {
  auto study = tune::StudyClient::open(request.folder).value();
  const Json state = study.ask({}).value();
  const Json* meta = state.find("meta");
  TrialFields fields;
  if (meta != nullptr) fields.add_description(*meta);
  const bool least_best = meta == nullptr || text_in(*meta, "goal") == "minimize";
  std::vector<StudyRow> early;
  std::optional<TrialPicker> picker;
  const auto begin = [&] {
    picker.emplace(request, fields, least_best);
    for (StudyRow& row : early) picker->take(std::move(row));
  };
  each_row(study, [&](StudyRow row) {
    if (picker) return picker->take(std::move(row));
    fields.add_row(row.json);
    early.push_back(std::move(row));
    if (early.size() == kEarlyRows) begin();
  });
  if (!picker) begin();
  PickedTrials picked{.rows = {}, .matched = picker->matched()};
  picked.rows = std::move(*picker).rows();
  return picked;
}

}  // namespace

Exit list_trials(const StudyRequest& request) {
  need_folder(request.folder);
  const auto [rows, matched] = pick_trials(request);
  if (request.json) {
    Json list = Json::array();
    for (const StudyRow& row : rows) list.push_back(row_document(row));
    print({{"folder", request.folder}, {"matched", matched}, {"trials", std::move(list)}});
    return Exit::ok;
  }
  print_rows(rows);
  if (matched > rows.size())
    std::printf("%zu of %llu trials; --limit shows more\n", rows.size(),
                static_cast<unsigned long long>(matched));
  else if (rows.empty())
    std::printf("no trial fits\n");
  return Exit::ok;
}

}  // namespace troupe::cli
