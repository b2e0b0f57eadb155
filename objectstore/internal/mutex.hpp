/// A mutex with attributes by which clang's -Wthread-safety checks its use. Other compilers see a
/// plain mutex.
#pragma once

#include <mutex>

#if defined(__clang__)
#define TROUPE_TS(x) __attribute__((x))
#else
#define TROUPE_TS(x)
#endif

namespace troupe::objectstore::internal {

class TROUPE_TS(capability("mutex")) Mutex {
 public:
  void lock() noexcept TROUPE_TS(acquire_capability()) { mutex_.lock(); }
  void unlock() noexcept TROUPE_TS(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class TROUPE_TS(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) noexcept TROUPE_TS(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~Lock() TROUPE_TS(release_capability()) { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace troupe::objectstore::internal

#define TROUPE_GUARDED_BY(m) TROUPE_TS(guarded_by(m))
#define TROUPE_REQUIRES(m) TROUPE_TS(requires_capability(m))
