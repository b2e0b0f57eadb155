/// Entry into troupe: one executable plays every role, so `main` begins here.
///
///     int main(int argc, char** argv) {
///       return troupe::run(argc, argv, [](troupe::Context& ctx) {
///         std::cout << ctx.get(ctx.submit<f>(1));
///       });
///     }
///
/// Code before `run`, and global constructors, execute once in the driver and once in each node's
/// zygote: only build values there (no files, ports, threads, CUDA).
#pragma once

#include "troupe/runtime/context.hpp"
#include "troupe/runtime/options.hpp"

#include <memory>
#include <string>
#include <type_traits>

namespace troupe {

/// Which cluster a session works on: one of its own, or one that runs. Each option has a
/// `--troupe-*` flag; what the program sets here wins over the flag.
struct SessionOptions {
  /// `--troupe-cpus`: CPU slots of each node of an own cluster; 0: as many as the process may use.
  double cpus = 0;
  /// `--troupe-memory`: bytes of each node's object store; 0: a share of the machine's.
  Bytes memory{};
  /// `--troupe-nodes`: with 2 to 200 the own cluster has so many nodes, each a process of its own
  /// on this machine that stands for a host, and a control process; they take about 0.1 s more to
  /// start. 0 or 1: one node.
  unsigned nodes = 0;
  /// `--troupe-address`, or else the environment's TROUPE_ADDRESS: the file of a running cluster,
  /// as `troupe up` writes it. The session joins that cluster as a job and ends nothing of it. A
  /// join token instead of a file: no node of the cluster runs on this host, so the session starts
  /// one without slots, which joins and ends with it. Cannot be combined with `nodes`, which wins
  /// over the environment, nor with what describes nodes of an own cluster.
  std::string address = {};
  // What each node of an own cluster has besides, for tasks and actors that ask for it.
  /// `--troupe-gpus`: devices, numbered from 0.
  double gpus = 0;
  /// `--troupe-resource NAME=AMOUNT`, may be repeated: something of the program's own, such as
  /// licences.
  Resources resources = {};
  /// `--troupe-label NAME=VALUE`, may be repeated: for placing.
  Labels labels = {};
};

/// For programs that do not begin with run(): the first line of main. Removes `--troupe-*` flags
/// from argc/argv. Returns only in the driver; a zygote or worker never comes back from it. Throws
/// InvalidArgument for a flag that is malformed or unknown, naming it.
TROUPE_API void enter(int& argc, char** argv);

/// Starts a private cluster and takes it down again when destroyed, or joins a running one (then
/// one line on stderr says which). One at a time per process. Construction blocks until the node
/// answers, at most 10 s for each of starting and joining. It throws Unavailable (nobody answers;
/// the cluster of the file has ended; a process of an own cluster could not start, naming it) or
/// InvalidArgument (the cluster's file is not this user's, open to others, malformed, or of another
/// protocol). Destruction drops tasks that were not awaited, lets actors end (actor.hpp), and ends
/// everything that the session started; refs that are left do nothing. It blocks until that is
/// done: for milliseconds as a rule, 2 s for calls to actors that do not end, and 3 s more for
/// actors that do not.
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
/// The part of run() that is no template: enter, Session, body, errors printed with their cause
/// chain.
TROUPE_API int run_body(int& argc, char** argv, int (*body)(void* closure, Context& context),
                        void* closure);
}  // namespace detail

/// Runs `body(Context&)` (returning void or int) as the driver of a job and gives the process's
/// exit code: body's own, 0 for void, 1 when an error left the body (it is printed with its cause
/// chain), 2 for a bad flag. Takes down what it started before it returns. Never returns in a
/// worker.
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
