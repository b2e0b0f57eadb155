/// Tables for terminals: aligned columns, sizes, ages and short ids.
///
///     table_text({{"NODE", "STORE"}, {"node-0", size_text(used)}});
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::observe {

/// The most characters of a cell; the last column of a table may have more.
inline constexpr std::size_t kMaxCell = 200, kMaxLastCell = 2000;

/// Aligns the rows as a table; the first row is the head. Each cell is made visible
/// (base/visible_text.hpp), since names come from programs, and long cells are cut.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

/// 1536 → "1.5 KiB".
std::string size_text(std::uint64_t bytes);
/// 90 s → "1m 30s".
std::string age_text(std::uint64_t nanoseconds);
/// 2.50 → "2.5", at most ten digits.
std::string number_text(double number);

/// The part of ids that a table shows: as many digits of their beginning, or of their end.
struct IdPart {
  std::size_t digits = 8;
  bool at_end = false;
  std::string of(const std::string& id) const;
};
/// Returns the shortest part, of at least eight digits, by which these ids differ. Ids that one
/// process has counted begin with the same digits, so their ends are taken, even of a single one.
IdPart unique_part(std::vector<std::string> ids);

/// Returns the id that a person means: a whole one, or the beginning or end of exactly one, as
/// tables print it. Errors: invalid_argument that lists the ids that fit, or says where to look.
/// `list`: the kind of rows that the ids are of, like actors.
Result<std::string> id_meant(std::string_view part, const std::vector<std::string>& ids,
                             std::string_view list);

}  // namespace troupe::observe
