/// The contents of a store as a map, to compare them.
#pragma once

#include "troupe/runtime/control/store.hpp"

#include <gtest/gtest.h>
#include <map>
#include <string>

namespace troupe::control {

using Map = std::map<std::string, std::string>;

inline Map contents(Store& store, std::string_view prefix = "") {
  Map found;
  EXPECT_TRUE(store.scan(prefix, [&](auto k, auto v) { found.emplace(k, v); }).ok());
  return found;
}

}  // namespace troupe::control
