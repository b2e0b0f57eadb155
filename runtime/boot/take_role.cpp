#include "troupe/runtime/boot/take_role.hpp"

#include "troupe/runtime/agent/agent.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/control/server.hpp"
#include "troupe/runtime/os/orphans.hpp"
#include "troupe/runtime/os/role.hpp"

#include <csignal>
#include <utility>

namespace troupe::process {
namespace {

/// Runs when the library is loaded, before any constructor of the program's own.
__attribute__((constructor)) void take_role() {
  Inherited& mine = inherited();
  if (mine.role == Role::driver) return;
  fill_standard_descriptors();
  if (mine.role == Role::zygote || mine.role == Role::worker) {
    adopt_orphans();
    apply_signals(mine.signals);
  }
  if (mine.role != Role::agent && mine.role != Role::control) return;
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error of who writes it
  if (const pid_t launcher = launcher_in(mine.text); launcher != 0) die_with_parent(launcher);
  if (mine.role == Role::agent) agent::run_agent(std::move(mine.socket), mine.text);
  control::run_control(std::move(mine.socket), mine.text);
}

}  // namespace

void link_roles() noexcept {}

}  // namespace troupe::process
