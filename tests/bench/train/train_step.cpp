// train_step SHAPE THREADS [FIRST_CPU [MICRO [MESH]]]: makes training steps on command, for the
// benchmarks. SHAPE is layers x channels x context x batch of a GPT-2. MICRO is the number of
// micro-batches, and MESH is a text like tp=2. The program prints a line that names the device.
// Then it reads numbers of steps, one a line, and prints the median time of each series in
// milliseconds.
#include "training.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace {

using troupe::bench::Training;
using troupe::collective::Mesh;
using Clock = std::chrono::steady_clock;

double milliseconds_of_step(Training& training) {
  const Clock::time_point start = Clock::now();
  training.step();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median_of(Training& training, int steps) {
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) times.push_back(milliseconds_of_step(training));
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  return times[static_cast<std::size_t>(steps / 2)];
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3 || argc > 6) {
    std::fprintf(stderr,
                 "usage: %s LAYERSxCHANNELSxCONTEXTxBATCH THREADS [FIRST_CPU [MICRO [MESH]]]\n",
                 argv[0]);
    return 2;
  }
  const int threads = std::atoi(argv[2]);
  troupe::bench::pin_to_cpus(argc > 3 ? std::atoi(argv[3]) : 0, threads);
  troupe::train::Layout layout{.micro = argc > 4 ? std::atoi(argv[4]) : 1};
  if (argc > 5) troupe::train::set_mesh(layout, argv[5]);
  Mesh mesh;
  if (layout.ranks() > 1) mesh = Mesh::from_environment({layout.dp, layout.tp, layout.pp});
  Training training(troupe::bench::shape_of(argv[1]), threads, layout, mesh);
  for (int i = 0; i < 3; ++i) training.step();
  std::cout << training.device() << std::endl;
  for (int steps = 0; std::cin >> steps;)
    std::cout << median_of(training, std::clamp(steps, 1, 1'000'000)) << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_step: %s\n", error.what());
  return 1;
}
