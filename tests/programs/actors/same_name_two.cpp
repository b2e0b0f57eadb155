// The other class of same_name_one.cpp.
#include "tests/programs/actors/same_name.hpp"
#include "tests/programs/program.hpp"

#include <array>
#include <string>

namespace {

struct Cache {
  std::array<double, 1000> values{};
  void fill(double x) { values.fill(x); }
};

template <class Call>
void refused(const Call& call) {
  try {
    call();
    std::cout << "not refused\n";
  } catch (const troupe::InvalidArgument& error) {
    const std::string text = error.what();
    const bool both =
        text.find("same_name_one.cpp") != text.npos && text.find("same_name_two.cpp") != text.npos;
    std::cout << (both ? "refused, both files are named" : text) << std::endl;
  }
}

}  // namespace

void same_name::find_by_name(troupe::Context& ctx) {
  refused([&] { ctx.get(ctx.find<Cache>("cache")->call<&Cache::fill>(2.0)); });
}

void same_name::find_handle(troupe::Context& ctx) {
  const auto handle = ctx.find_object<troupe::Actor<Cache>>("handle");
  refused([&] { ctx.get(ctx.get(*handle).call<&Cache::fill>(2.0)); });
}
