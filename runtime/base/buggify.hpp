/// Points in product code that only the simulator switches on: rare paths that it takes more often
/// (TROUPE_BUGGIFY), and planted bugs that it must find (TROUPE_MUTANT).
///
///     if (TROUPE_BUGGIFY("link.small_window", 0.05)) window = 1;     // a legal, unlikely choice
///     if (seen && !TROUPE_MUTANT("link.accept_duplicates")) return;  // a bug, never in product
///
/// In a product process both hooks are null, and only tests set them. The cost is one load and one
/// branch that is never taken. (After FoundationDB's BUGGIFY.)
#pragma once

namespace troupe {

/// The simulator's answers. Not thread-safe to set; null is "no".
struct SimulationHooks {
  bool (*buggify)(const char* name, double probability) = nullptr;
  bool (*mutant)(const char* name) = nullptr;
};
inline SimulationHooks simulation_hooks;

}  // namespace troupe

/// The name identifies the point in recorded schedules, wherever it stands in its file.
#define TROUPE_BUGGIFY(name, probability)                                \
  (__builtin_expect(::troupe::simulation_hooks.buggify != nullptr, 0) && \
   ::troupe::simulation_hooks.buggify((name), (probability)))
#define TROUPE_MUTANT(name)                                             \
  (__builtin_expect(::troupe::simulation_hooks.mutant != nullptr, 0) && \
   ::troupe::simulation_hooks.mutant(name))
