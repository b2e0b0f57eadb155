/// The start of a program: run(), Session and enter(). One executable plays every role (driver,
/// zygote, worker), and each of these processes begins in `main`.
///
///     int main(int argc, char** argv) {
///       return troupe::run(argc, argv, [](troupe::Context& ctx) {
///         std::cout << ctx.get(ctx.submit<f>(1));
///       });
///     }
///
/// Code before `run`, and global constructors, execute once in the driver and once in each node's
/// zygote. Such code should only build values: no files, ports, threads or CUDA. What it writes to
/// standard output appears once, from the driver. What it writes to standard error appears once for
/// each of these processes.
///
/// In a cluster that the program joins, the lines of its tasks and actors appear in the driver, as
/// "(mix pid=8185 node=node-0) TEXT": Context::on_log() and TROUPE_LOGS choose otherwise, and
/// `troupe logs` shows them later.
///
/// Standard output of a worker is line-buffered, unless the program sets another buffer. A worker
/// ends *in order* when it has no call to run at the end of its job or of its actor. Then exit
/// handlers and destructors of static objects run, also those that `main` registered before `run`.
/// After 2 s the worker is killed. None of them run in a worker that is killed, or whose call has
/// not ended when its job does. Such a worker loses no line that it has ended, but may lose the
/// rest of a line.
#pragma once

#include "troupe/runtime/context.hpp"
#include "troupe/runtime/options.hpp"

#include <memory>
#include <string>
#include <type_traits>

namespace troupe {

/// The cluster on which a session works: a private one, or one that runs already. Each option has a
/// `--troupe-*` flag. A value that the program sets here wins over the flag.
struct SessionOptions {
  /// `--troupe-cpus`: CPU slots of each node of a private cluster. 0: as many as the process may
  /// use, by its affinity, the quotas of its control groups and its batch system's allocation.
  double cpus = 0;
  /// `--troupe-memory`: bytes of the object store of each node. 0: a share of the machine's memory.
  Bytes memory{};
  /// `--troupe-nodes`: the number of nodes of the private cluster, 2 to 200. All run on this
  /// machine: one agent for each node, which stands for a host, and a control process. 0 or 1: one
  /// node without control, which starts faster.
  unsigned nodes = 0;
  /// `--troupe-address`, or else TROUPE_ADDRESS in the environment: the file of a running cluster,
  /// as `troupe up` writes it. The session joins that cluster as a job, and the cluster outlives
  /// it. A join token instead of a file serves a host on which no node of the cluster runs: the
  /// session starts a node without slots, which joins the cluster and ends with the session. Not to
  /// be combined with options that describe nodes of a private cluster. `nodes` wins over the
  /// environment.
  std::string address = {};
  // Resources of each node of a private cluster, for tasks and actors that ask for them:
  /// `--troupe-gpus`: devices, numbered from 0.
  double gpus = 0;
  /// `--troupe-resource NAME=AMOUNT`, may be repeated: a resource that the program defines, such as
  /// licences.
  Resources resources = {};
  /// `--troupe-label NAME=VALUE`, may be repeated: labels for placement.
  Labels labels = {};
};

/// Gives the process its role, in programs that do not begin with run(). Call it in the first line
/// of main. It returns only in the driver, never in a zygote or worker. Removes `--troupe-*` flags
/// from argc and argv. Throws InvalidArgument, which names the flag, for a malformed or unknown
/// one.
TROUPE_API void enter(int& argc, char** argv);

/// A driver's membership in a cluster. It starts a private cluster and ends it when destroyed, or
/// joins a running one, which a line on stderr names. A process has one at a time.
///
/// Construction blocks until the node answers, at most 10 s each for the start and for joining. It
/// throws Unavailable if no process answers, if the cluster of the file has ended, or if a process
/// of a private cluster could not start (the error names it). It throws InvalidArgument if the
/// cluster's file belongs to another user, is open to others, is malformed, or is of another
/// protocol.
///
/// Destruction drops tasks that were not awaited, lets actors end (actor.hpp), and ends all
/// processes that the session started. Remaining Refs and Contexts become useless but harmless:
/// their calls, and those of threads that wait, end in Unavailable. It blocks until
/// that is done: usually for milliseconds, at most 2 s for calls to actors that do not end, and 3 s
/// more for actors that do not end.
class TROUPE_API Session {
 public:
  explicit Session(SessionOptions options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();
  Context context();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace detail {
/// Does the work of run() that needs no template: calls enter(), makes a Session, calls the body,
/// and prints an error with its chain of causes.
TROUPE_API int run_body(int& argc, char** argv, int (*body)(void* closure, Context& context),
                        void* closure);
}  // namespace detail

/// Runs `body(Context&)`, which returns void or int, as the driver of a job.
/// Result: the exit code of the process. It is the body's own, or 0 for void, 1 if an error left
/// the body (it is printed with its chain of causes), 2 for a bad flag. Before it returns, it ends
/// all that it started. It never returns in a worker.
template <class Body>
int run(int& argc, char** argv, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  static_assert(std::is_invocable_v<Plain&, Context&>,
                "troupe::run: the body must be callable as body(troupe::Context&)");
  using R = std::invoke_result_t<Plain&, Context&>;
  static_assert(std::is_void_v<R> || std::is_convertible_v<R, int>,
                "troupe::run: the body must return void or int, the process's exit code");
  Plain* what = std::addressof(body);  // may point at a function, which no void* can
  return detail::run_body(
      argc, argv,
      [](void* closure, Context& context) -> int {
        Plain& call = **static_cast<Plain**>(closure);
        if constexpr (std::is_void_v<R>) {
          call(context);
          return 0;
        } else {
          return call(context);
        }
      },
      static_cast<void*>(&what));
}

}  // namespace troupe
