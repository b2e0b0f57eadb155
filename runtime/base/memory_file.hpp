/// Memory files (memfd). The limit of a file's size (RLIMIT_FSIZE) holds for them, too.
///
///     Fd fd = make_fd(memfd_create("troupe-ring", MFD_CLOEXEC));
///     if (!resize_memory(fd.get(), bytes)) fail(errno, memory_remedy(errno));
#pragma once

#include <cstdint>

namespace troupe {

/// Sets the size as ftruncate() does. Returns false with errno set. Beyond RLIMIT_FSIZE errno is
/// EFBIG, and the program gets no SIGXFSZ, because it did not ask for a file.
bool resize_memory(int fd, std::uint64_t bytes) noexcept;

/// Returns a remedy for an errno of making or mapping memory: a part of a sentence.
const char* memory_remedy(int error) noexcept;

}  // namespace troupe
