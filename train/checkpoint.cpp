#include "troupe/train/checkpoint.hpp"

#include "troupe/train/internal/reject.hpp"

namespace troupe::train::internal {

void refuse_types() {
  reject(
      "a saved model's parts have other types than those that it is loaded into: name the same "
      "ones in the same order");
}

int engine_among(std::initializer_list<bool> engines) {
  int found = -1, number = 0;
  for (const bool is_engine : engines) {
    if (is_engine && found >= 0)
      reject(
          "a checkpoint in a folder has one engine, and this one has two: save them in two runs");
    if (is_engine) found = number;
    ++number;
  }
  return found;
}

std::shared_ptr<const FolderCheckpoint> open_checked(const std::string& path) {
  auto opened = std::make_shared<const FolderCheckpoint>(FolderCheckpoint::open(path));
  for (std::size_t f = 0; f < opened->document().files.size(); ++f) opened->verify(f).value();
  return opened;
}

}  // namespace troupe::train::internal
