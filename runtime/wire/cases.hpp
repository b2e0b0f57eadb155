/// One lambda per kind of message, for std::visit.
#pragma once

namespace troupe::wire {

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

}  // namespace troupe::wire
