#include "troupe/runtime/boot/take_role.hpp"

#include "troupe/runtime/agent/agent.hpp"
#include "troupe/runtime/base/stack_reader.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/control/server.hpp"
#include "troupe/runtime/os/early_output.hpp"
#include "troupe/runtime/os/oom_score.hpp"
#include "troupe/runtime/os/orphans.hpp"
#include "troupe/runtime/os/process_title.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/os/signals.hpp"
#include "troupe/runtime/os/stack_role.hpp"
#include "troupe/runtime/os/stack_text.hpp"

#include <csignal>
#include <string>
#include <utility>

namespace troupe::boot {
namespace {

/// Runs when the library is loaded, before any constructor of the user's program. It does not
/// return in an agent, in control or in a process that looks up stacks.
__attribute__((constructor)) void take_role() {
  set_stack_reader(&os::readable_stack);
  os::Inherited& mine = os::inherited();
  if (mine.role == os::Role::driver) return;
  fill_standard_descriptors();
  os::show_title(std::string("troupe: ") + os::name_of(mine.role));
  if (mine.role == os::Role::zygote || mine.role == os::Role::worker) {
    os::adopt_orphans();
    os::raise_oom_score();
    os::apply_signals(mine.signals);
    os::drop_early_output();
  }
  if (mine.role == os::Role::stack) os::run_stack(std::move(mine.socket), mine.text);
  if (mine.role != os::Role::agent && mine.role != os::Role::control) return;
  os::ignore_group_signals();
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond the file size limit returns an error
  if (const pid_t launcher = os::launcher_in(mine.text); launcher != 0)
    os::die_with_parent(launcher);
  if (mine.role == os::Role::agent) agent::run_agent(std::move(mine.socket), mine.text);
  control::run_control(std::move(mine.socket), mine.text);
}

}  // namespace

void link_roles() noexcept {}

}  // namespace troupe::boot
