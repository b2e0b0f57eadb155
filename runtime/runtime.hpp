/// troupe in five minutes.
///
/// troupe runs C++ programs on many machines. You write ordinary functions and classes. troupe runs
/// the functions as *tasks*, keeps the classes alive as *actors*, and moves values between them as
/// *objects*. This header is the front door: it includes what a program needs and says how the
/// parts fit. One rule to remember: **angle brackets hold code, parentheses hold data.**
///
///     #include "troupe/troupe.hpp"
///     double area(double r) { return 3.14159 * r * r; }
///     int main(int argc, char** argv) {
///       return troupe::run(argc, argv, [](troupe::Context& ctx) {
///         auto a = ctx.submit<area>(2.0);                 // a Ref<double>, at once
///         std::cout << ctx.get(ctx.submit<area>(a));      // from worker to worker
///       });
///     }
///
/// Tasks (context.hpp)
///   `ctx.submit<f>(args…)` runs f somewhere and returns a Ref to its result. Arguments convert as
///   in a plain call; a Ref<U> given where a U fits is a dependency: f starts when it is ready. f
///   may take `Context&` first; then it can submit, get and wait itself. f may be a function, a
///   static member, a template instance, a lambda without captures, a coroutine that returns
///   Task<T>. A task whose worker or node dies runs again (`ctx.with({.max_retries = 5})`), and
///   exactly one result is published. A get inside a task runs the awaited task on its own thread
///   (in place) if no worker has begun it; otherwise it returns its CPU while it waits. So
///   recursion needs no process per level, but a task must hold no lock across get.
///   `ctx.with({.isolated = true})` keeps a task out of the process that awaits it.
///
/// Actors (actor.hpp)
///   `ctx.spawn<A>(args…)` makes an A in a process of its own; `actor.call<&A::m>(args…)` runs a
///   method on it. Methods run one at a time, so an actor needs no lock; the calls of one caller
///   run in order. A method that must wait is a coroutine: during its co_await other calls may run.
///   Methods may take `ActorContext&` first.
///
/// Objects (ref.hpp, view.hpp, array.hpp, tensor.hpp)
///   A Ref is a counted handle to a value anywhere in the cluster. `ctx.get(ref)` copies the value
///   out, `ctx.view(ref)` shows it in place, `ctx.put(v)` stores one, `ctx.create<T>(n)` lets you
///   write one in place. An Array<T> inside a struct is read in place as well, and so is a
///   Tensor<T>, which is an Array with a shape.
///
/// What may cross (codec.hpp)
///   Standard types, aggregates, classes with a friend `fields()`. No macro, no generator. A type
///   that cannot cross does not compile, and the first line of the compiler's output says why.
///
/// Errors (base/error.hpp)
///   `get` and `co_await` throw a class of Error: TaskFailed (your function threw), ActorDied,
///   ObjectLost, TimedOut, Infeasible, … Each says where it arose, what caused it, and whether the
///   work may have run (`outcome()`): not_executed, executed or unknown. No call hangs: a failure
///   is detected in bounded time and ends every wait that depends on it. `try_get` and `find`
///   report the expected failures without exceptions.
///
/// Threads
///   A Context may be copied and used by any thread of its process. A thread may go on after the
///   task that started it, and after the session: its calls then throw Unavailable. A task holds
///   its CPU while its own thread runs, also if another thread of it waits: join such a thread, and
///   never spin for its end. A Ref is thread-safe like a shared_ptr. Actor methods and coroutines
///   run on their own executor, one at a time. Only code that holds a Context may block.
///
/// Entry (session.hpp)
///   `troupe::run(argc, argv, body)` in main. Worker processes run the same executable and enter it
///   there. Without an address it starts a private cluster (--troupe-nodes, else one node) and ends
///   it. Code before it, global constructors too, also runs in each node's zygote, from which
///   workers are forked: only build values there. What tasks and actors print appears on standard
///   output of their node's agent, which a private cluster shares with the driver.
///
/// Read next: context.hpp for the verbs, options.hpp for resources and retries, task.hpp for
/// coroutines, async_event.hpp for threads that wake them, callable.hpp for a library whose users
/// give it functions.
#pragma once

#include "troupe/runtime/actor.hpp"
#include "troupe/runtime/async_event.hpp"
#include "troupe/runtime/codec.hpp"
#include "troupe/runtime/context.hpp"
#include "troupe/runtime/options.hpp"
#include "troupe/runtime/ref.hpp"
#include "troupe/runtime/session.hpp"
#include "troupe/runtime/task.hpp"
#include "troupe/runtime/view.hpp"
