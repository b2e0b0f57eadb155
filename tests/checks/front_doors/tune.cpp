#include "troupe/tune/tune.hpp"

#include <iostream>
#include <vector>

using namespace troupe;

double score_of_one_step(std::vector<double>& weights, const tune::Point&, long step);

void example() {
  // EXAMPLE troupe/tune/tune.hpp
}
