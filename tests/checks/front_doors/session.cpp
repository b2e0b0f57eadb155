#include "troupe/troupe.hpp"

#include <iostream>

int f(int x) {
  return x;
}
// EXAMPLE troupe/runtime/session.hpp
