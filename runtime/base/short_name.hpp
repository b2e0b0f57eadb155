/// Shortens names of types and functions for messages and tables.
///
///     short_name("troupe::tune::internal::TrialActor<lm::Config>")        // TrialActor
///     short_name("outer::area((anonymous namespace)::Shape, std::string)")  // area(Shape, string)
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Returns the name without namespaces and template arguments. Two types may have the same short
/// name.
std::string short_name(std::string_view full);

}  // namespace troupe
