#include "troupe/runtime/agent/node_pieces.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

constexpr std::size_t kRow = 256;      ///< of a row without its texts
constexpr std::size_t kResource = 32;  ///< of a resource without its name

std::size_t bytes_of(const std::pair<std::string, std::int64_t>& resource) {
  return kResource + resource.first.size();
}

std::size_t bytes_of(const wire::NodeRow& row) {
  std::size_t bytes = kRow + row.name.size() + row.address.size();
  for (const auto& resource : row.resources) bytes += bytes_of(resource);
  return bytes;
}

}  // namespace

std::vector<wire::Nodes> pieces_of(wire::Nodes answer) {
  std::vector<wire::Nodes> pieces;
  std::vector<wire::NodeRow>& left = answer.rows;
  do {
    wire::Nodes& piece = pieces.emplace_back(wire::Nodes{answer.request, {}});
    for (std::size_t room = kMostNodePiece; !left.empty(); left.pop_back()) {
      wire::NodeRow& row = left.back();
      std::size_t bytes = bytes_of(row);
      if (bytes > room && !piece.rows.empty()) break;
      for (; bytes > room && !row.resources.empty(); row.resources.pop_back())
        bytes -= bytes_of(row.resources.back());
      room -= std::min(room, bytes);
      piece.rows.push_back(std::move(row));
    }
    std::reverse(piece.rows.begin(), piece.rows.end());
    piece.more = !left.empty();
  } while (!left.empty());
  return pieces;
}

}  // namespace troupe::agent
