/// Makes text from programs and other hosts safe to print.
///
///     print(visible_text("a\x1b[2Jb"));     // a?[2Jb: no character steers the terminal
///     pad(width - columns_of(cell));
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// Returns the text with '?' for each control character (C0, DEL, C1), each line or paragraph
/// separator, each invisible mark that reorders or hides text, and each byte that is not UTF-8.
/// Everything else stays.
std::string visible_text(std::string_view text);

/// Returns the text of at most `columns` code points, made visible. A longer one ends in "...".
std::string visible_text(std::string_view text, std::size_t columns);

/// Returns the text with the bytes of each such character as "\\x1b", so that nothing of it is lost.
/// Tabs stay.
std::string escaped_text(std::string_view text);

/// Returns the number of code points of a visible text.
std::size_t columns_of(std::string_view visible) noexcept;

}  // namespace troupe
