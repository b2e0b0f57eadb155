#include "troupe/runtime/detail/callable.hpp"

#include "troupe/runtime/base/words.hpp"

#include <cxxabi.h>
#include <cctype>
#include <cstring>
#include <string>
#include <string_view>

namespace troupe::detail {

namespace {

// Copies a text that is never freed: names are made once per entry, before main, and other static
// objects may use them until the process ends.
const char* keep_text(const std::string& text) {
  char* kept = new char[text.size() + 1];
  std::memcpy(kept, text.c_str(), text.size() + 1);
  return kept;
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
}

// Returns X of the __PRETTY_FUNCTION__ "… [with T = X]" (g++) or "… [T = X]" (clang), with the
// spellings that differ between the compilers made equal.
std::string inner_name(const char* text) {
  std::string_view view(text);
  const std::size_t open = view.find('[');
  const std::size_t equals = open == std::string_view::npos ? open : view.find("= ", open);
  if (equals == std::string_view::npos) return std::string(view);
  view.remove_prefix(equals + 2);
  if (!view.empty() && view.back() == ']') view.remove_suffix(1);
  if (!view.empty() && view.front() == '&') view.remove_prefix(1);
  std::string name(view);
  replace_all(name, "std::__cxx11::", "std::");
  replace_all(name, "std::basic_string<char>", "std::string");
  replace_all(name, "{anonymous}", "(anonymous namespace)");
  replace_all(name, " &", "&");
  replace_all(name, " *", "*");
  return name;
}

// True if the mangled name contains a closure type: Ul<parameters>E[<number>]_ in the Itanium C++
// ABI. A name that only looks like one gives true as well, which is the safe answer.
bool mentions_closure(std::string_view name) {
  std::size_t at = name.find("Ul");
  if (at == std::string_view::npos) return false;
  while ((at = name.find('E', at)) != std::string_view::npos) {
    ++at;
    std::size_t digits = at;
    while (digits < name.size() && std::isdigit(static_cast<unsigned char>(name[digits])) != 0)
      ++digits;
    if (digits < name.size() && name[digits] == '_') return true;
  }
  return false;
}

}  // namespace

const char* readable_name(const char* text) {
  return keep_text(inner_name(text));
}

const char* readable_name_in(const char* text, const char* file) {
  std::string_view place(file);
  std::size_t from = place.rfind('/');
  if (from != place.npos && from != 0) from = place.rfind('/', from - 1);
  if (from != place.npos) place.remove_prefix(from + 1);
  std::string name = inner_name(text);
  replace_all(name, "(anonymous namespace)", '(' + std::string(place) + ')');
  return keep_text(name);
}

const char* signature_name(const char* text, std::span<const char* const> parameters) {
  std::string name = inner_name(text);
  name += '(';
  for (const char* parameter : parameters) {
    if (name.back() != '(') name += ", ";
    name += inner_name(parameter);
  }
  name += ')';
  return keep_text(name);
}

bool names_internal_linkage(const char* mangled_target) {
  const std::string_view name(mangled_target);
  if (name.find("_GLOBAL__N_") != std::string_view::npos) return true;  // anonymous namespace
  if (mentions_closure(name)) return true;
  // A function as template argument is mangled L_Z<encoding>E. An `L` before an unqualified name
  // says internal linkage. In a nested name (N<qualifiers><length><component>…E) it stands before
  // the last component, so the loop skips the components that precede it by their lengths.
  std::size_t at = name.find("L_Z");
  if (at == std::string_view::npos) return false;
  at += 3;
  if (at < name.size() && name[at] == 'L') return true;
  if (at >= name.size() || name[at] != 'N') return false;
  for (++at; at < name.size() && std::strchr("rVKRO", name[at]) != nullptr;) ++at;
  while (at < name.size()) {
    if (name[at] == 'L')
      return at + 1 < name.size() && std::isdigit(static_cast<unsigned char>(name[at + 1])) != 0;
    if (std::isdigit(static_cast<unsigned char>(name[at])) == 0) return false;
    std::size_t length = 0;
    while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0)
      length = length * 10 + static_cast<std::size_t>(name[at++] - '0');
    at += length;
  }
  return false;
}

// Large arguments begin at a multiple of 64, as their long runs assume; others at one of 16. Sizes
// of 0 (dependencies) and arguments without room keep size 0.
void lay_out(Call& call, std::span<const std::size_t> sizes) {
  call.arguments.resize(sizes.size());
  std::size_t end = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t alignment = sizes[i] >= kWideRun ? 64 : 16;
    const std::size_t begin = (end + alignment - 1) & ~(alignment - 1);
    if (sizes[i] == 0 || sizes[i] > kInlineArgument || begin + sizes[i] > kInlineBytes) continue;
    call.arguments[i].offset = static_cast<std::uint32_t>(begin);
    call.arguments[i].size = static_cast<std::uint32_t>(sizes[i]);
    end = begin + sizes[i];
  }
  call.bytes.resize(end);
}

Engine& running_engine() {
  if (Engine* engine = Engine::current()) return *engine;
  throw Unavailable(Code::unavailable, "troupe is not running: this needs run() or a Session",
                    Outcome::not_executed);
}

ActorHandle adopt_actor(ActorId id, ObjectHandle lifetime) {
  return running_engine().adopt_actor(id, std::move(lifetime));
}

void resume_when_ready(const ObjectHandle& object, CoroutineRoot& root,
                       std::coroutine_handle<> handle) {
  running_engine().when_ready(object, [root = root.shared_from_this(), handle]() mutable {
    // The engine may destroy this closure while it runs, so the root moves to the stack.
    const std::shared_ptr<CoroutineRoot> alive = std::move(root);
    handle.resume();
    alive->resumed();
  });
}

}  // namespace troupe::detail
