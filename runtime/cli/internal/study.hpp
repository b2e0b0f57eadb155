/// What the verbs of `troupe tune` share: rows of trials and how people see them.
#pragma once

#include "troupe/runtime/base/json.hpp"
#include "troupe/tune/study/study_client.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// The row of a trial, as far as the verbs show it.
struct StudyRow {
  std::uint64_t number = 0;
  Json json = Json::object();
};

/// Throws Failure (usage) when the path is no folder.
void need_folder(const std::string& path);
/// Returns the field as people read it; a dash when there is none.
std::string text_in(const Json& json, std::string_view name);
/// Returns the row with its number, for --json.
Json row_document(const StudyRow& row);
/// Prints the rows as a table; nothing when there are none.
void print_rows(const std::vector<StudyRow>& rows);
/// Visits the rows of all trials, by number. Throws the errors of the study.
void each_row(tune::StudyClient& study, const std::function<void(StudyRow row)>& visit);

}  // namespace troupe::cli
