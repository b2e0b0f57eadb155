#include "troupe/train/checkpoint/folder/mapped_file.hpp"

#include "troupe/train/checkpoint/internal/files.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace troupe::train {

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Result<internal::OpenFile> opened = internal::open_regular(path);
  if (!opened) return opened.error();
  MappedFile mapped;
  if (opened->size == 0) return mapped;
  const auto size = static_cast<std::size_t>(opened->size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened->file.get(), 0);
  if (data == MAP_FAILED) return internal::failed("map", path, errno);
  mapped.data_ = data;
  mapped.size_ = size;
  return mapped;
}

}  // namespace troupe::train
