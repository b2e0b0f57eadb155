#include "troupe/tune/searcher.hpp"

#include "troupe/tune/internal/streams.hpp"
#include "troupe/tune/internal/tpe.hpp"

#include <array>

namespace troupe::tune {
namespace {

/// Returns combination number `cell` of the parameters' values; the last parameter varies fastest.
Point combination(const std::vector<std::vector<double>>& values, std::size_t cell) {
  Point point(values.size());
  for (std::size_t i = values.size(); i-- > 0;) {
    point[i] = values[i][cell % values[i].size()];
    cell /= values[i].size();
  }
  return point;
}

std::size_t combinations(const std::vector<std::vector<double>>& values) {
  std::size_t n = 1;
  for (const auto& v : values) {
    if (__builtin_mul_overflow(n, v.size(), &n) || n > (std::size_t{1} << 40)) {
      throw InvalidArgument(Code::invalid_argument, "tune: the grid has more than 2^40 points");
    }
  }
  return n;
}

class RandomSearcher final : public Searcher {
 public:
  RandomSearcher(const SearchSpace& space, std::uint64_t seed) : space_(space), seed_(seed) {
    for (std::size_t i = 0; i < space_.size(); ++i) {
      const Domain& d = space_.parameters[i].domain;
      if (!d.grid) continue;
      crossed_.push_back(i);
      values_.push_back(grid_values(d, d.options.size()));
    }
    cells_ = combinations(values_);
  }
  std::optional<Point> suggest(int trial) const override {
    // Every cell of the grid gets the same sample.
    Random random =
        stream(seed_, Purpose::sample,
               crossed_.empty() ? static_cast<std::uint64_t>(trial) : own_points_ / cells_);
    Point point = space_.sample(random);
    const Point crossed = combination(values_, own_points_ % cells_);
    for (std::size_t k = 0; k < crossed_.size(); ++k) point[crossed_[k]] = crossed[k];
    return point;
  }
  void take(int, const Point&, Chosen by) override { own_points_ += by == Chosen::by_searcher; }
  void tell(const Ended&) override {}

 private:
  SearchSpace space_;
  std::uint64_t seed_;
  std::vector<std::size_t> crossed_;
  std::vector<std::vector<double>> values_;
  std::size_t cells_ = 1;
  std::size_t own_points_ = 0;
};

class GridSearcher final : public Searcher {
 public:
  GridSearcher(const SearchSpace& space, int points) {
    if (points < 1 || points > kMostPoints) {
      throw InvalidArgument(Code::invalid_argument,
                            "tune::GridSearch: points must be from 1 to 1,000,000");
    }
    for (const Parameter& p : space.parameters) {
      values_.push_back(grid_values(p.domain, static_cast<std::size_t>(points)));
    }
    count_ = combinations(values_);
  }
  std::optional<Point> suggest(int) const override {
    if (own_points_ >= count_) return std::nullopt;
    return combination(values_, own_points_);
  }
  void take(int, const Point&, Chosen by) override { own_points_ += by == Chosen::by_searcher; }
  void tell(const Ended&) override {}

 private:
  static constexpr int kMostPoints = 1'000'000;
  std::vector<std::vector<double>> values_;
  std::size_t count_ = 0;
  std::size_t own_points_ = 0;
};

class HaltonSearcher final : public Searcher {
 public:
  HaltonSearcher(const SearchSpace& space, std::uint64_t seed) : space_(space) {
    if (space_.size() > kPrimes.size()) {
      throw InvalidArgument(Code::invalid_argument,
                            "tune::Halton: at most " + std::to_string(kPrimes.size()) +
                                " parameters, and best below 10; use RandomSearch");
    }
    Random random = stream(seed, Purpose::shift, 0);
    for (std::size_t i = 0; i < space_.size(); ++i) shifts_.push_back(random.uniform());
  }
  std::optional<Point> suggest(int) const override {
    Point point;
    for (std::size_t i = 0; i < space_.size(); ++i) {
      const double u = radical_inverse(own_points_ + 1, kPrimes[i]) + shifts_[i];
      point.push_back(at_quantile(space_.parameters[i].domain, u < 1 ? u : u - 1));
    }
    return point;
  }
  void take(int, const Point&, Chosen by) override { own_points_ += by == Chosen::by_searcher; }
  void tell(const Ended&) override {}

 private:
  static constexpr std::array<unsigned, 20> kPrimes = {2,  3,  5,  7,  11, 13, 17, 19, 23, 29,
                                                       31, 37, 41, 43, 47, 53, 59, 61, 67, 71};
  /// Mirrors the digits of n in this base at the radix point: the van der Corput sequence.
  static double radical_inverse(std::uint64_t n, unsigned base) {
    double value = 0;
    double place = 1.0 / base;
    for (; n > 0; n /= base, place /= base) value += static_cast<double>(n % base) * place;
    return value;
  }
  SearchSpace space_;
  std::vector<double> shifts_;
  std::uint64_t own_points_ = 0;
};

}  // namespace

Searcher::~Searcher() = default;

std::optional<Point> Searcher::ask(int trial) {
  std::optional<Point> point = suggest(trial);
  if (point) take(trial, *point, Chosen::by_searcher);
  return point;
}

namespace {
/// Throws InvalidArgument when the space has a grid() that this searcher does not cross.
void refuse_grids(const AnySearcher& settings, const SearchSpace& space) {
  const bool halton = std::holds_alternative<Halton>(settings);
  if (!halton && !std::holds_alternative<Tpe>(settings)) return;
  for (const Parameter& p : space.parameters) {
    if (!p.domain.grid) continue;
    throw InvalidArgument(Code::invalid_argument,
                          "tune: " + p.name + " is a grid(), of which " +
                              (halton ? "Halton" : "Tpe") +
                              " does not try every option: take choice() or RandomSearch");
  }
}
}  // namespace

std::unique_ptr<Searcher> make_searcher(const AnySearcher& settings, const SearchSpace& space,
                                        Goal goal, std::uint64_t seed) {
  refuse_grids(settings, space);
  if (const auto* grid = std::get_if<GridSearch>(&settings)) {
    return std::make_unique<GridSearcher>(space, grid->points);
  }
  if (std::holds_alternative<Halton>(settings)) {
    return std::make_unique<HaltonSearcher>(space, seed);
  }
  if (const auto* tpe = std::get_if<Tpe>(&settings)) {
    return std::make_unique<TpeSearcher>(*tpe, space, goal, seed);
  }
  return std::make_unique<RandomSearcher>(space, seed);
}

std::string show(const AnySearcher& settings) {
  if (const auto* grid = std::get_if<GridSearch>(&settings)) {
    return "grid(points " + std::to_string(grid->points) + ")";
  }
  if (std::holds_alternative<Halton>(settings)) return "halton";
  if (const auto* tpe = std::get_if<Tpe>(&settings)) {
    return "tpe(startup_trials " + std::to_string(tpe->startup_trials) + ", candidates " +
           std::to_string(tpe->candidates) + ")";
  }
  return "random";
}

}  // namespace troupe::tune
