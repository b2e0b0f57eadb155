#include "troupe/objectstore/internal/copy_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <cerrno>
#include <cstring>

namespace troupe::objectstore::internal {
namespace {

constexpr char kMagic[8] = {'t', 'r', 'o', 'u', 'p', 'e', 'c', '1'};

struct Head {
  char magic[8];
  std::uint64_t name;  ///< checksum of node and object
  std::uint64_t note_size;
  std::uint64_t note;
  std::uint64_t size;
  std::uint64_t bytes;
  std::uint64_t unused;
  std::uint64_t head;  ///< checksum of all before
};
static_assert(sizeof(Head) == kCopyHead);

std::uint64_t checksum(const void* data, std::size_t size) {
  return XXH3_64bits(data, size);
}

std::uint64_t name_checksum(NodeId node, ObjectId object) {
  const std::uint64_t parts[] = {node.high, node.low, object.high, object.low};
  return checksum(parts, sizeof parts);
}

std::uint64_t head_checksum(const Head& head) {
  return checksum(&head, sizeof head - sizeof head.head);
}

CopyOutcome went_wrong(int error) {
  return {is_full(error) ? CopyOutcome::How::full : CopyOutcome::How::failed, text_of(error)};
}

CopyOutcome damaged(std::string why) {
  return {CopyOutcome::How::damaged, std::move(why)};
}

CopyOutcome write_into(int file, const Head& head, BlobView note, std::span<const std::byte> bytes,
                       Pwrite pwrite) {
  int error = write_all(pwrite, file, &head, sizeof head, 0);
  if (error == 0) error = write_all(pwrite, file, note.data(), note.size(), sizeof head);
  if (error == 0)
    error = write_all(pwrite, file, bytes.data(), bytes.size(), sizeof head + note.size());
  return error == 0 ? CopyOutcome{} : went_wrong(error);
}

/// Opens a copy and checks its head against the name and the length of the file. O_NONBLOCK, so
/// that a FIFO under this name does not block; only a regular file is accepted.
CopyOutcome open_copy(int folder, NodeId node, ObjectId object, Pread pread, Fd& file, Head& head) {
  file = Fd(openat(folder, object.str().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT) return {CopyOutcome::How::missing, "there is none"};
    return went_wrong(errno);
  }
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return went_wrong(errno);
  if (!S_ISREG(info.st_mode)) return damaged("it is no regular file");
  std::uint64_t done = 0;
  if (const int error = read_all(pread, file.get(), &head, sizeof head, 0, done); error != 0)
    return went_wrong(error);
  if (done < sizeof head) return damaged("its file ends within its first bytes");
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 || head.head != head_checksum(head))
    return damaged("its first bytes do not have the checksum that they were written with");
  if (head.name != name_checksum(node, object)) return damaged("it is the copy of another object");
  const auto length = static_cast<std::uint64_t>(info.st_size);
  if (head.note_size > kMostNote || length < sizeof head + head.note_size ||
      length - sizeof head - head.note_size != head.size)
    return damaged("its file has " + std::to_string(length) + " bytes and not as many as written");
  return {};
}

}  // namespace

CopyOutcome write_copy(int folder, NodeId node, ObjectId object, BlobView note,
                       std::span<const std::byte> bytes, Pwrite pwrite, double keep_free) {
  const std::string name = object.str();
  const std::string part = name + ".part";
  Fd file(
      openat(folder, part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return went_wrong(errno);
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.name = name_checksum(node, object);
  head.note_size = note.size();
  head.note = checksum(note.data(), note.size());
  head.size = bytes.size();
  head.bytes = checksum(bytes.data(), bytes.size());
  head.head = head_checksum(head);
  CopyOutcome outcome;
  if (!leaves_enough(file.get(), bytes.size(), keep_free))
    outcome = {CopyOutcome::How::full,
               "its file system is left as little free space as others are to have"};
  else
    outcome = write_into(file.get(), head, note, bytes, pwrite);
  // Some file systems, such as NFS, report a failed write only at close.
  if (const int fd = file.release(); close(fd) != 0 && outcome.how == CopyOutcome::How::done)
    outcome = went_wrong(errno);
  if (outcome.how == CopyOutcome::How::done &&
      renameat(folder, part.c_str(), folder, name.c_str()) != 0)
    outcome = went_wrong(errno);
  if (outcome.how != CopyOutcome::How::done) unlinkat(folder, part.c_str(), 0);
  return outcome;
}

CopyOutcome look_at_copy(int folder, NodeId node, ObjectId object, Pread pread, Blob& note,
                         std::uint64_t& size) {
  Fd file;
  Head head{};
  CopyOutcome outcome = open_copy(folder, node, object, pread, file, head);
  if (outcome.how != CopyOutcome::How::done) return outcome;
  note.resize(head.note_size);
  std::uint64_t done = 0;
  if (const int error = read_all(pread, file.get(), note.data(), note.size(), sizeof head, done);
      error != 0)
    return went_wrong(error);
  if (done < note.size() || checksum(note.data(), note.size()) != head.note)
    return damaged("its note does not have the checksum that it was written with");
  size = head.size;
  return {};
}

CopyOutcome read_copy(int folder, NodeId node, ObjectId object, Pread pread,
                      std::span<std::byte> into) {
  Fd file;
  Head head{};
  CopyOutcome outcome = open_copy(folder, node, object, pread, file, head);
  if (outcome.how != CopyOutcome::How::done) return outcome;
  if (head.size != into.size()) return damaged("it has another size than its object");
  std::uint64_t done = 0;
  if (const int error =
          read_all(pread, file.get(), into.data(), into.size(), sizeof head + head.note_size, done);
      error != 0)
    return went_wrong(error);
  if (done < into.size() || checksum(into.data(), into.size()) != head.bytes)
    return damaged("its bytes do not have the checksum that they were written with");
  return {};
}

void remove_copy(int folder, ObjectId object) noexcept {
  unlinkat(folder, object.str().c_str(), 0);
}

}  // namespace troupe::objectstore::internal
