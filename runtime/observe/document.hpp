/// Shows an answer: as the one JSON document of verbs and pages, or as a table for a terminal.
///
///     print(document_of(RowKind::tasks, answer, at_unix_ns));
///     std::printf("%s", text_of(RowKind::tasks, answer).c_str());
#pragma once

#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/observe/answer.hpp"

#include <cstdint>
#include <string>

namespace troupe::observe {

/// Returns {"kind","at_unix_ns","total","matched","shown","unanswered","rows"}, and "next" when
/// more rows follow. A row is an object with every column; a missing value is null.
Json document_of(RowKind kind, const Answer& answer, std::int64_t at_unix_ns);

/// Returns a table and, when rows are not shown, a line that counts them. Columns that are empty in
/// each row are left out. No control character passes. Missing tells of sources without an answer.
std::string text_of(RowKind kind, const Answer& answer);

}  // namespace troupe::observe
