// Proves that two classes of one name, in anonymous namespaces of two source files, are two classes.
// same_name_two.cpp has the other.
#include "tests/programs/actors/same_name.hpp"
#include "tests/programs/program.hpp"

namespace {

struct Cache {
  int size = 1;
  int count() const { return size; }
};

void two_classes(troupe::Context& ctx) {
  auto mine = ctx.with(troupe::ActorOptions{.name = "cache"}).spawn<Cache>();
  same_name::find_by_name(ctx);
  const troupe::Ref<troupe::Actor<Cache>> handle = ctx.put(mine);
  ctx.detach(handle, "handle");
  same_name::find_handle(ctx);
  std::cout << ctx.get(mine.call<&Cache::count>()) << ' ' << ctx.find<Cache>("cache").has_value()
            << '\n';
  ctx.forget_object("handle");
}

const programs::Program two{"two_files_have_a_class_of_one_name",
                            {.expect = "refused, both files are named\n"
                                       "refused, both files are named\n1 1\n"},
                            two_classes};

}  // namespace
