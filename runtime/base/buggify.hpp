/// Points in product code that only the simulator switches on: rare paths that it takes more often
/// (TROUPE_BUGGIFY), and planted bugs that it must find (TROUPE_MUTANT).
///
///     if (TROUPE_BUGGIFY(0.05)) window = 1;                       // a legal, unlikely choice
///     if (seen && !TROUPE_MUTANT("link.accept_duplicates")) return;  // a bug, never in product
///
/// In a product process both hooks are null, and only tests set them. The cost is one load and one
/// branch that is never taken. (After FoundationDB's BUGGIFY.)
#pragma once

namespace troupe {

/// The simulator's answers. Not thread-safe to set; null is "no".
struct SimulationHooks {
  bool (*buggify)(double probability, const char* file, int line) = nullptr;
  bool (*mutant)(const char* name) = nullptr;
};
inline SimulationHooks simulation_hooks;

}  // namespace troupe

#define TROUPE_BUGGIFY(probability)                                      \
  (__builtin_expect(::troupe::simulation_hooks.buggify != nullptr, 0) && \
   ::troupe::simulation_hooks.buggify((probability), __FILE__, __LINE__))
#define TROUPE_MUTANT(name)                                             \
  (__builtin_expect(::troupe::simulation_hooks.mutant != nullptr, 0) && \
   ::troupe::simulation_hooks.mutant(name))
