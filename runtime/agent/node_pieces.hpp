/// Splits the answer to ListNodes, which may be larger than a ring's frame.
///
///     for (const wire::Nodes& piece : pieces_of(std::move(answer))) processes.send(to, piece);
///
/// The last rows come first, and `more` says that another piece follows. A row that alone does not
/// fit leaves out the last of its named resources.
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <cstddef>
#include <vector>

namespace troupe::agent {

inline constexpr std::size_t kMostNodePiece = 12 * 1024;  ///< bytes of a piece, at most

/// Returns at least one piece, also of an answer without rows. O(rows).
std::vector<wire::Nodes> pieces_of(wire::Nodes answer);

}  // namespace troupe::agent
