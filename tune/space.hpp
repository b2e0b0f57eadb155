/// The search space of a user's struct: parameters are members, not strings.
///
///     struct Hp { double lr; int width; std::string optimizer; double decay; };
///     auto space = tune::Space<Hp>{}.with(&Hp::lr, tune::log_uniform(1e-5, 1e-1))
///                                   .with(&Hp::width, tune::integers(16, 512))
///                                   .with(&Hp::optimizer, tune::choice("adam", "sgd"))
///                                   .derive(&Hp::decay, [](const Hp& hp) { return hp.lr / 10; });
///
/// Members that no call names keep the value of a default-constructed Hp. A parameter is shown
/// under its member's name, or under another one: with("rate", &Hp::lr, …).
#pragma once

#include "troupe/tune/detail/member_name.hpp"
#include "troupe/tune/domain.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::tune {

/// The options of one parameter. Their order matters to population-based training, which explores
/// by moving to a neighbouring option.
template <class T>
struct Choice {
  std::vector<T> values;
  bool grid = false;
};

namespace detail {
template <class T>
using choice_value = std::conditional_t<std::is_convertible_v<T, const char*>, std::string, T>;
template <class... T>
using choice_of = choice_value<std::common_type_t<std::decay_t<T>...>>;
template <class T>
std::string shown(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, char>) {
    return std::to_string(value);  // a stream prints 8-bit integers as letters
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return show_number(value);  // all digits, so that different options look different
  } else {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << value;
    return out.str();
  }
}

/// Returns the index of the option that a point's value names. Throws InvalidArgument when there is
/// no such option.
inline std::size_t option_index(const std::string& name, double value, std::size_t options) {
  if (value >= 0 && value < static_cast<double>(options)) return static_cast<std::size_t>(value);
  throw InvalidArgument(Code::invalid_argument, "tune::Space: " + name + " has no option " +
                                                    show_number(value) + " of " +
                                                    std::to_string(options));
}

/// Converts a domain's value to the member's type. A scheduler may leave the domain: a value that
/// the type cannot hold becomes the nearest one that it can.
template <class M>
M member_value(double value) {
  if constexpr (std::is_integral_v<M>) {
    if (std::isnan(value)) return M{};
    // The limit of a 64-bit type rounds up as a double, to a value that the type cannot hold: hence
    // `>=`, before the cast.
    if (value >= static_cast<double>(std::numeric_limits<M>::max()))
      return std::numeric_limits<M>::max();
    if (value <= static_cast<double>(std::numeric_limits<M>::min()))
      return std::numeric_limits<M>::min();
  } else if constexpr (sizeof(M) < sizeof(double)) {
    constexpr auto kTop = static_cast<double>(std::numeric_limits<M>::max());
    if (!std::isnan(value)) value = std::min(std::max(value, -kTop), kTop);
  }
  return static_cast<M>(value);
}

/// Converts a member's value to the domain. If the member's type cannot tell it from the nearest
/// value of the domain (0.1f and 0.1), returns the domain's value.
template <class M>
double domain_value(const Domain& domain, M member) {
  const auto value = static_cast<double>(member);
  if constexpr (std::is_floating_point_v<M> && sizeof(M) < sizeof(double)) {
    const double nearest = clamp(domain, value);
    if (member_value<M>(nearest) == member) return nearest;
  }
  return value;
}

/// Throws InvalidArgument when the domain has values that a member of type M cannot hold.
template <class M>
void check_range(const std::string& name, const Domain& domain) {
  const bool normal = domain.kind == Domain::Kind::normal;
  const double low = normal ? domain.mean - 40 * domain.deviation : domain.low;
  const double high = normal ? domain.mean + 40 * domain.deviation : domain.high;
  const auto least = static_cast<double>(std::numeric_limits<M>::lowest());
  const auto most = static_cast<double>(std::numeric_limits<M>::max());
  if (low >= least && high <= most) return;
  const std::string range = std::is_integral_v<M>
                                ? std::to_string(std::numeric_limits<M>::lowest()) + " to " +
                                      std::to_string(std::numeric_limits<M>::max())
                                : show_number(least) + " to " + show_number(most);
  throw InvalidArgument(Code::invalid_argument,
                        "tune::Space: " + (name.empty() ? "the member" : name) + " holds " + range +
                            " and " + show(domain) +
                            " goes beyond; narrow it, or take a larger type");
}
}  // namespace detail

/// A choice of one of the values, each as likely as the others.
template <class... T>
Choice<detail::choice_of<T...>> choice(T&&... values) {
  return {{detail::choice_of<T...>(std::forward<T>(values))...}, false};
}
/// A choice of which every value is tried, crossed with the other grid() parameters and with each
/// random sample.
template <class... T>
Choice<detail::choice_of<T...>> grid(T&&... values) {
  return {{detail::choice_of<T...>(std::forward<T>(values))...}, true};
}

/// Binds members of Hp to the parameters of a SearchSpace.
template <class Hp>
class Space {
  static_assert(std::is_default_constructible_v<Hp>,
                "troupe: the struct of hyper-parameters needs a default constructor");

 public:
  /// Adds a parameter. Throws InvalidArgument when the member or the name is already taken, when
  /// the member is a whole number and the domain has fractions, or when the domain has values that
  /// the member cannot hold.
  template <class M>
  Space& with(M Hp::* member, const Domain& domain) & {
    return add(detail::member_name(member), member, domain);
  }
  template <class M, class T>
  Space& with(M Hp::* member, const Choice<T>& options) & {
    return add_choice(detail::member_name(member), member, options);
  }
  template <class M, class D>
  Space& with(const std::string& name, M Hp::* member, const D& domain) & {
    if constexpr (std::is_same_v<D, Domain>) {
      return add(name, member, domain);
    } else {
      return add_choice(name, member, domain);
    }
  }
  /// The same with a member of a base class.
  template <class M, class B, class D>
    requires(std::is_base_of_v<B, Hp> && !std::is_same_v<B, Hp>)
  Space& with(M B::* member, const D& domain) & {
    return with(detail::member_name(member), static_cast<M Hp::*>(member), domain);
  }
  /// The same with the member in angle brackets. This form finds the member's name in every class;
  /// the others may fall back to p0, p1, … (detail/member_name.hpp).
  template <auto Member, class D>
  Space& with(const D& domain) & {
    return with(detail::member_name<Member>(), Member, domain);
  }
  /// Computes a member from the parameters, after they are set and in the order of the derive()
  /// calls. The member is no parameter: searchers and schedulers do not see it.
  template <class M, class F>
  Space& derive(M Hp::* member, F f) & {
    derived_.push_back([member, f](Hp& hp) { hp.*member = static_cast<M>(f(std::as_const(hp))); });
    return *this;
  }
  /// Adds a point to try before the searcher's own, such as a known good one. Throws
  /// InvalidArgument when it lies outside the domains given so far.
  Space& start_at(const Hp& hp) & {
    starts_.push_back(to_point(hp));
    search_.check(starts_.back());
    return *this;
  }

  template <class... A>
  Space&& with(A&&... a) && {
    with(std::forward<A>(a)...);
    return std::move(*this);
  }
  template <auto Member, class D>
  Space&& with(const D& domain) && {
    this->template with<Member>(domain);
    return std::move(*this);
  }
  template <class M, class F>
  Space&& derive(M Hp::* member, F f) && {
    derive(member, std::move(f));
    return std::move(*this);
  }
  Space&& start_at(const Hp& hp) && {
    start_at(hp);
    return std::move(*this);
  }

  const SearchSpace& search() const noexcept { return search_; }
  const std::vector<Point>& starts() const noexcept { return starts_; }

  /// Returns a default Hp with the point's values in its members. Throws InvalidArgument when the
  /// point has the wrong length or names an option that does not exist. Other values outside a
  /// domain are accepted, since a scheduler may have left it.
  Hp from_point(const Point& point) const {
    if (point.size() != bindings_.size()) search_.check(point);
    Hp hp{};
    for (std::size_t i = 0; i < bindings_.size(); ++i) bindings_[i].set(hp, point[i]);
    for (const auto& derive : derived_) derive(hp);
    return hp;
  }
  /// Converts an Hp to a point. Throws InvalidArgument when a member holds none of its options.
  Point to_point(const Hp& hp) const {
    Point point;
    for (const Binding& b : bindings_) point.push_back(b.get(hp));
    return point;
  }

 private:
  struct Binding {
    std::function<void(Hp&, double)> set;
    std::function<double(const Hp&)> get;
    std::function<bool(const Hp&, const void*)> is;
  };

  /// Gives a parameter without a name its fallback name. Throws InvalidArgument when the member or
  /// the name is already taken.
  void claim(std::string& name, const void* probe_member, const Hp& probe) {
    if (name.empty()) name = "p" + std::to_string(bindings_.size());
    for (std::size_t i = 0; i < bindings_.size(); ++i) {
      if (bindings_[i].is(probe, probe_member)) {
        throw InvalidArgument(Code::invalid_argument, "tune::Space: " + name +
                                                          " is already a parameter (" +
                                                          search_.parameters[i].name + ")");
      }
      if (search_.parameters[i].name == name) {
        throw InvalidArgument(Code::invalid_argument,
                              "tune::Space: two parameters are called " + name);
      }
    }
  }

  template <class M>
  void bind(std::string name, M Hp::* member, Domain domain, std::function<void(Hp&, double)> set,
            std::function<double(const Hp&)> get) {
    const Hp probe{};
    Binding b{std::move(set), std::move(get), [member](const Hp& hp, const void* at) {
                return static_cast<const void*>(std::addressof(hp.*member)) == at;
              }};
    claim(name, std::addressof(probe.*member), probe);
    search_.parameters.push_back({std::move(name), std::move(domain)});
    bindings_.push_back(std::move(b));
  }

  template <class M>
  Space& add(std::string name, M Hp::* member, const Domain& domain) {
    static_assert(std::is_arithmetic_v<M>,
                  "troupe: a range of numbers needs a member that is a number; "
                  "for other types use tune::choice(…)");
    if (std::is_integral_v<M> && domain.kind != Domain::Kind::integer) {
      throw InvalidArgument(Code::invalid_argument,
                            "tune::Space: " + (name.empty() ? "the member" : name) +
                                " is a whole number and " + show(domain) +
                                " makes fractions; use tune::integers(low, high)");
    }
    detail::check_range<M>(name, domain);
    bind(
        std::move(name), member, domain,
        [member](Hp& hp, double v) { hp.*member = detail::member_value<M>(v); },
        [member, domain](const Hp& hp) { return detail::domain_value(domain, hp.*member); });
    return *this;
  }

  template <class M, class T>
  Space& add_choice(const std::string& name, M Hp::* member, const Choice<T>& options) {
    static_assert(std::is_convertible_v<T, M>,
                  "troupe: the options of this choice do not convert to the member's type");
    std::vector<std::string> shown;
    std::vector<M> values;
    for (const T& value : options.values) {
      shown.push_back(detail::shown(value));
      values.push_back(static_cast<M>(value));
    }
    Domain domain = choices(std::move(shown));
    domain.grid = options.grid;
    bind(
        name, member, domain,
        [member, values, name](Hp& hp, double v) {
          hp.*member = values[detail::option_index(name, v, values.size())];
        },
        [member, values, name](const Hp& hp) {
          for (std::size_t i = 0; i < values.size(); ++i) {
            if (values[i] == hp.*member) return static_cast<double>(i);
          }
          throw InvalidArgument(Code::invalid_argument,
                                "tune::Space: " + name + " holds none of its options");
        });
    return *this;
  }

  SearchSpace search_;
  std::vector<Binding> bindings_;
  std::vector<std::function<void(Hp&)>> derived_;
  std::vector<Point> starts_;
};

}  // namespace troupe::tune
