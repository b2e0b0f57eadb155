// Proves that what `put` accepted can be read where memory and the spill folder are full.
#include "tests/programs/program.hpp"

#include <cstdlib>
#include <numeric>

namespace objects_full_disk {
namespace {

using programs::Program;
using troupe::Context;
using troupe::Ref;

constexpr std::size_t kLength = 312'500;  // 2.5 MB

std::vector<double> numbers(std::size_t seed) {
  std::vector<double> all(kLength);
  std::iota(all.begin(), all.end(), static_cast<double>(seed));
  return all;
}
double ends_of(std::span<const double> all) {
  return all.front() + all.back();
}

void fill(const Context& ctx) {
  std::vector<Ref<std::vector<double>>> refs;
  try {
    for (;;) refs.push_back(ctx.put(numbers(refs.size())));
  } catch (const troupe::Error& error) {
    std::cout << troupe::name_of(error.code()) << ' ' << (refs.size() > 6) << std::endl;
  }
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < refs.size(); ++i)
      if (ctx.get(refs[i]) != numbers(i)) std::cout << "wrong\n";
  for (std::size_t i = refs.size(); i-- > 0;)
    if (ctx.get(ctx.submit<ends_of>(refs[i])) != ends_of(numbers(i))) std::cout << "wrong\n";
  std::cout << "all read\n";
}

/// Proves that each accepted object can be read, in order and by tasks, when nothing more fits.
const Program full{"a_full_spill_folder_hides_nothing",
                   {.expect = "out_of_disk 1\nall read\n"},
                   [](int& argc, char** argv) {
                     ::setenv("TROUPE_SPILL_BYTES", "15000000", 1);
                     ::setenv("TROUPE_SPILL_PATIENCE_MS", "300", 1);
                     troupe::enter(argc, argv);
                     troupe::Session session({.memory = troupe::Bytes{16 << 20}});
                     fill(session.context());
                     return 0;
                   }};

}  // namespace
}  // namespace objects_full_disk
