/// What same_name_two.cpp tries with the actor of same_name_one.cpp.
#pragma once

#include "troupe/troupe.hpp"

namespace same_name {

/// Looks the actor up by its name, as its own class.
void find_by_name(troupe::Context& ctx);
/// Gets the actor's handle from a named object, as a handle of its own class.
void find_handle(troupe::Context& ctx);

}  // namespace same_name
