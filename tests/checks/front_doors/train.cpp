#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <vector>

using namespace troupe;

struct Config {};
void train_loop(train::Worker&, Config, Ref<std::vector<float>>);

void example(Context& ctx, Ref<std::vector<float>> data) {
  // EXAMPLE troupe/train/train.hpp
}
