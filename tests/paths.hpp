/// Where the build puts what tests start, open or read. The build writes the one unit that defines these functions
/// (tests/paths.cmake), so no other command line holds a path, and a compiler cache serves a clone in another folder.
///
///     Child up({paths::command(), "up", "--nodes", "3"});
#pragma once

/// Each function returns an absolute path of static lifetime. A path that the build does not have is a link error.
namespace paths {

const char* golden();        ///< the folder tests/golden
const char* command();       ///< the `troupe` command
const char* cli_program();   ///< what the command runs on clusters in tests/runtime/cli
const char* jobs_program();  ///< the drivers that share a cluster in tests/jobs
const char* jobs_library();  ///< a shared library of that program
const char* os_sample();     ///< a library with debug information, in tests/runtime/os
const char* chaos_shim();  ///< what makes clocks and disks fail; empty in a build with a sanitizer
const char* fake_nccl();   ///< looks like NCCL
const char* fake_nccl_old();    ///< looks like an NCCL that is too old
const char* fake_nccl_part();   ///< looks like an NCCL that lacks a function
const char* fake_nccl_ranks();  ///< a stand-in for NCCL whose ranks are threads

}  // namespace paths
