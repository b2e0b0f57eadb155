// The smallest program that proves that the installed headers and the library belong together.
#include "troupe/runtime/version.hpp"
#include "troupe/troupe.hpp"

#include <iostream>

int main() {
  std::cout << "troupe " << troupe::version() << '\n';
  return troupe::version() == TROUPE_VERSION_TEXT ? 0 : 1;
}
