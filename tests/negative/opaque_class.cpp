// expect: this type cannot cross: it is no standard container and no aggregate
#include "troupe/troupe.hpp"

class Secret {
 public:
  explicit Secret(int v) : value_(v) {}
  int value() const { return value_; }

 private:
  int value_;
};
void program(troupe::Context& ctx) {
  auto r = ctx.put(Secret(1));
}
