/// What is left of a process that crashes: the signal, the address, and the stack of the thread.
///
/// The process writes a record into a memory file that another process holds, inside the signal's
/// handler, by system calls and one backtrace() alone. Then the signal takes its default action, so
/// core files and exit statuses stay as they are. The reader trusts nothing in the file.
///
///     record_crashes(area);                                // a worker, after its fork
///     Result<CrashReport> report = read_crash(fd, offset); // its agent, after the death
///     log(text_of(*report));
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/os/module_files.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe::os {

inline constexpr std::array kCrashSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
inline constexpr std::size_t kMaxCrashFrames = 64;
/// The size of a record's area: the stack, and the modules of the process. The kernel gives no page
/// of a memory file before it is written.
inline constexpr std::size_t kCrashBytes = 16 * 1024;

/// Lets each signal of kCrashSignals write a record into the area, unless the program handles or
/// ignores that signal, as a build with AddressSanitizer does. A handler that the program sets
/// later replaces this one. The calling thread gets a stack for the handler. A fork of this process
/// writes no record. Call it once in a process. Returns the signals that are recorded: bit n - 1
/// stands for signal n. Precondition: `area` has kCrashBytes, is aligned to 8 bytes, and is mapped
/// until the process ends.
std::uint64_t record_crashes(std::span<std::byte> area) noexcept;

/// Gives the calling thread a stack for the handler, until the thread ends. Without one, the
/// overflow of the thread's own stack leaves no record. A stack that the thread has already stays.
/// Returns false if there is no memory.
bool give_crash_stack() noexcept;

struct CrashFrame {
  std::string module;        ///< path of the executable or library; empty: unknown
  std::string build_id;      ///< hexadecimal; empty: none, or the file is not the one that ran
  std::uint64_t offset = 0;  ///< address in the module as its symbols count it; else the address
};

struct CrashReport {
  int signal = 0;
  bool sent = false;          ///< a process has sent the signal: `address` is its pid
  std::uint64_t address = 0;  ///< that could not be accessed, or the instruction's
  int pid = 0, thread_id = 0;
  std::string thread;              ///< name of the thread
  bool whole = false;              ///< false: the handler did not end, so frames may be missing
  std::vector<CrashFrame> frames;  ///< innermost first
};

/// Reads the record at this offset of a memory file. Reads no memory of the other process, so a file
/// that shrinks does no harm. Opens modules to read their build-ids: only regular files with the
/// inode that the process has mapped. Errors: unavailable when there is no record, invalid_argument
/// when the record is damaged.
Result<CrashReport> read_crash(int fd, std::uint64_t offset = 0);
/// Reads the record in memory of kCrashBytes that its writer may still change. `modules` reads the
/// files, and may leave out what it cannot read in time. Precondition: the memory cannot shrink.
Result<CrashReport> read_crash(std::span<const std::byte> area,
                               const ModuleSource& modules = read_modules);

/// Returns "killed by SIGSEGV at address 0x0 in thread 'mix' (8185)" and a line for each frame:
/// "    #0 libmix.so+0x1234". No control character passes.
std::string text_of(const CrashReport& report);

}  // namespace troupe::os
