#include "troupe/runtime/base/build_id.hpp"

#include <elf.h>
#include <link.h>
#include <cstddef>
#include <cstring>

namespace troupe {
namespace {

std::span<const unsigned char> id_in_notes(const char* at, std::size_t size) noexcept {
  const char* end = at + size;
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* name = at + sizeof note;
    const char* desc = name + ((note.n_namesz + 3) & ~3U);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
      return {reinterpret_cast<const unsigned char*>(desc), note.n_descsz};
    at = desc + ((note.n_descsz + 3) & ~3U);
  }
  return {};
}

int keep_first(dl_phdr_info* info, std::size_t, void* closure) {
  *static_cast<std::span<const unsigned char>*>(closure) = build_id_of(*info);
  return 1;  // the executable is the first module listed
}

}  // namespace

std::span<const unsigned char> build_id_of(const dl_phdr_info& module) noexcept {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const auto& header = module.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto id = id_in_notes(reinterpret_cast<const char*>(module.dlpi_addr + header.p_vaddr),
                                header.p_memsz);
    if (!id.empty()) return id;
  }
  return {};
}

std::string executable_build_id() {
  std::span<const unsigned char> id;
  dl_iterate_phdr(&keep_first, &id);
  std::string text;
  static constexpr char kDigits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < id.size() && i < 20; ++i) {
    text += kDigits[id[i] >> 4];
    text += kDigits[id[i] & 15];
  }
  return text.empty() ? "none" : text;
}

}  // namespace troupe
