#include "troupe/actors/actors.hpp"

#include <span>
#include <thread>
#include <vector>

using namespace troupe;

void example(std::span<float> mine, std::span<float> theirs) {
  // EXAMPLE troupe/actors/actors.hpp
}
