/// The files of programs on this node's disk: their digests, the cache that keeps copies by content,
/// and the folders of links through which a program finds its libraries. All of it blocks, so
/// Programs calls it on its thread.
///
///     auto file = open_regular(path);
///     auto digest = digest_of(file->get(), path);                  // SHA-256 in hex
///     if (make_folder(cache)) auto folder = link_libraries(cache, files, paths);
///     prune(cache, bytes, files_in_use);
///
/// Invariants: FILES-1 A folder of the cache belongs to this user alone. FILES-2 prune() removes no
/// file in use, and the least recently used ones first.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::agent {

/// Path and SHA-256 in hex of each file; the first is the executable.
using ProgramFiles = std::vector<std::pair<std::string, std::string>>;

/// What errno says, in words.
std::string errno_text();
/// Returns the SHA-256 in hex of a regular file. Errors: Unavailable with the path.
Result<std::string> digest_of(int fd, const std::string& path);
/// Opens for reading. Errors: Unavailable with the path, also for what is no plain file.
Result<Fd> open_regular(const std::string& path);
bool has_digest(const std::string& path, const std::string& digest);
/// Returns whether the text has the form of a digest.
bool is_digest(const std::string& text);
/// Returns what follows the last slash.
std::string file_name_of(const std::string& path);
/// Makes every folder of the path. Errors: OutOfDisk; InvalidArgument if the last folder does not
/// belong to this user alone.
Result<void> make_folder(const std::string& path);
/// Removes the least recently used files until at most `bytes` are left. Files in `keep` stay.
void prune(const std::string& folder, std::uint64_t bytes, const std::set<std::string>& keep);
/// Makes a folder of links in which each library has its own name, for LD_LIBRARY_PATH. Each set
/// of libraries has one folder, named by the digest of the set. `paths`: where the files lie here.
/// Errors: InvalidArgument (two libraries of one name), and those of make_folder().
Result<std::string> link_libraries(const std::string& cache, const ProgramFiles& files,
                                   const std::vector<std::string>& paths);

}  // namespace troupe::agent
