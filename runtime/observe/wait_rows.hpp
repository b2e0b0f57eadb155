/// Facts about waits as rows, so that they travel as the rows of other lists do.
///
///     selection.keep(wait_row(fact));               // at the owner of the thing
///     Result<Fact> fact = fact_of(answer.rows[0]);  // at the verb
#pragma once

#include "troupe/runtime/observe/rows.hpp"
#include "troupe/runtime/observe/wait_graph.hpp"

#include <string>

namespace troupe::observe {

std::string_view name_of(Thing::Kind kind) noexcept;
std::string_view name_of(Fact::State state) noexcept;

/// Returns the id of the row for this thing.
std::string wait_row_id(const Thing& thing);
/// Keeps WaitGraph::kMaxFollowed of the things that the fact waits for.
Row wait_row(const Fact& fact);
/// Precondition: the row has the form of its kind. Errors: invalid_argument for one that no owner
/// sends.
Result<Fact> fact_of(const Row& row);

}  // namespace troupe::observe
