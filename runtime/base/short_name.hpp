/// Names of types and functions as they stand in messages and tables for people.
///
///     short_name("troupe::tune::internal::TrialActor<lm::Config>")        // TrialActor
///     short_name("outer::area((anonymous namespace)::Shape, std::string)")  // area(Shape, string)
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Without namespaces and template arguments. Not an identity: two types may have the same.
std::string short_name(std::string_view full);

}  // namespace troupe
