/// Files in memory (memfd), and the limit of a file's size, which holds for them as well.
///
///     Fd fd = make_fd(memfd_create("troupe-ring", MFD_CLOEXEC));
///     if (!resize_memory(fd.get(), bytes)) fail(errno, memory_remedy(errno));
#pragma once

#include <cstdint>

namespace troupe {

/// As ftruncate(), false with errno. Beyond RLIMIT_FSIZE it is EFBIG, and the program, which asked
/// for no file, gets no SIGXFSZ.
bool resize_memory(int fd, std::uint64_t bytes) noexcept;

/// What to do about an errno of making or mapping memory: a part of a sentence.
const char* memory_remedy(int error) noexcept;

}  // namespace troupe
