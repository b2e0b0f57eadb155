#include "troupe/runtime/cli/cli.hpp"

int main(int argc, char** argv) {
  return troupe::cli::run(argc, argv);
}
