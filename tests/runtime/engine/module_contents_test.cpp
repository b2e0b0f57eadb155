// Programs without a build-id: their functions are told apart by what the programs consist of.
#include "troupe/runtime/engine/internal/module_contents.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
extern "C" void __asan_poison_memory_region(const volatile void*, std::size_t);
extern "C" void __asan_unpoison_memory_region(const volatile void*, std::size_t);
#endif

namespace troupe::engine::internal::module_contents_test {
namespace {

/// A loaded module of one segment that only has `code`, and one of variables.
struct Module {
  std::string code, variables;
  std::vector<ElfW(Phdr)> segments;
  dl_phdr_info info{};

  Module(const char* name, std::string with, std::string and_with)
      : code(std::move(with)), variables(std::move(and_with)) {
    info.dlpi_name = name;
    add(code, PF_R | PF_X);
    add(variables, PF_R | PF_W);
    info.dlpi_phdr = segments.data();
    info.dlpi_phnum = static_cast<ElfW(Half)>(segments.size());
  }
  void add(const std::string& bytes, ElfW(Word) flags) {
    ElfW(Phdr) segment{};
    segment.p_type = PT_LOAD;
    segment.p_flags = flags;
    segment.p_vaddr = reinterpret_cast<ElfW(Addr)>(bytes.data());  // of a module loaded at 0
    segment.p_filesz = segment.p_memsz = bytes.size();
    segments.push_back(segment);
  }
};

const std::string kCode(1000, 'c');

/// Makes AddressSanitizer refuse reads of these bytes, as of the gaps between a program's constants.
void guard([[maybe_unused]] const char* bytes, [[maybe_unused]] std::size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(bytes, size);
#endif
}
void unguard([[maybe_unused]] const char* bytes, [[maybe_unused]] std::size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(bytes, size);
#endif
}

TEST(ModuleContents, ProgramsOfTheSameSizeDiffer) {
  for (const std::size_t at : {0u, 500u, 999u}) {
    std::string other = kCode;
    other[at] = 'd';
    // The dynamic loader gives an executable no name.
    EXPECT_NE(hash_of_contents(Module("", kCode, "").info),
              hash_of_contents(Module("", other, "").info))
        << at;
  }
}

TEST(ModuleContents, AreTheSameAtAnotherPathAndWithOtherVariables) {
  EXPECT_EQ(hash_of_contents(Module("/home/me/libmine.so", kCode, "variables").info),
            hash_of_contents(Module("/tmp/troupe/cache/libmine.so", kCode, "have changed").info));
}

TEST(ModuleContents, GapsThatAddressSanitizerGuardsAreRead) {
  const Module module("", kCode, "");
  const std::uint64_t plain = hash_of_contents(module.info);
  guard(module.code.data() + 96, 32);  // whole words
  guard(module.code.data() + 992, 8);  // and the end
  EXPECT_EQ(hash_of_contents(module.info), plain);
  unguard(module.code.data(), kCode.size());
}

}  // namespace
}  // namespace troupe::engine::internal::module_contents_test
