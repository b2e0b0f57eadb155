/// The folder of a study: who may open it, and where its parts lie.
///
///     auto folder = StudyFolder::open("studies/resnet", StudyFolder::Use::own);
///     folder->store_path();                       // /…/studies/resnet/store
///
/// One process owns a folder, or several read it. The file `lock` has the lock (a record lock, so
/// that a fork of the owner has none), and `owner` has the owner's host and process. Only this
/// class opens `lock`: closing any descriptor of it would give the lock up.
#pragma once

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"

#include <memory>
#include <optional>
#include <string>

namespace troupe::tune {

/// The process that a folder's file `owner` names.
struct StudyOwner {
  std::string host;
  long pid = 0;
};

class TROUPE_API StudyFolder {
 public:
  enum class Use { own, read };

  /// Makes a missing folder (Use::own), examines it and takes the lock. Blocks at most 2 s, while
  /// readers have an owner's lock. Errors: Unavailable when another process owns the folder, names
  /// its pid and host; InvalidArgument for a file, another user's folder, one that cannot be
  /// written, one of an earlier version, and, with Use::read, one without a study.
  static Result<StudyFolder> open(const std::string& path, Use use);
  ~StudyFolder();
  StudyFolder(StudyFolder&&) noexcept;
  StudyFolder& operator=(StudyFolder&&) noexcept;

  /// An absolute path.
  const std::string& path() const noexcept { return path_; }
  std::string store_path() const { return path_ + "/store"; }
  std::string mark_path() const { return path_ + "/synced"; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  std::string logs_path() const { return path_ + "/logs"; }
  std::string exports_path() const { return path_ + "/exports"; }
  /// Returns a path to bind or connect the file `socket` by, of at most 107 bytes. It is valid
  /// while this object lives.
  std::string socket_address() const;

  /// Returns whether the folder has a store.
  static bool holds_study(const std::string& path);
  /// Returns who owns the folder or owned it last; nothing after an owner that ended by itself.
  static std::optional<StudyOwner> owner_of(const std::string& path);

 private:
  class Lock;
  StudyFolder(std::string path, std::unique_ptr<Lock> lock, Fd handle);
  std::string path_;
  std::unique_ptr<Lock> lock_;
  Fd handle_;  ///< of the folder, for socket_address()
};

}  // namespace troupe::tune
