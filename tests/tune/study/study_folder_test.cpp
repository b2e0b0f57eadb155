// Tests who may open a study's folder: one owner, or readers, and each refusal names the reason.
#include "troupe/tune/study/study_folder.hpp"
#include "tests/tune/study/studies.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cstring>
#include <functional>

namespace troupe::tune {
namespace {

using namespace studies;
using Use = StudyFolder::Use;

class StudyFolderTest : public studies::Test {
 protected:
  std::string refusal(Use use = Use::own) const {
    const auto folder = StudyFolder::open(study_, use);
    return folder.ok() ? std::string() : folder.error().message();
  }
  void make() const {
    ASSERT_TRUE(StudyFolder::open(study_, Use::own).ok());
    fs::create_directory(study_ + "/store");
  }
  static std::string pid_text(pid_t pid) { return "pid " + std::to_string(pid) + " on host "; }
};

/// A fork that does something, says so, and lives until the destructor kills it.
class Fork {
 public:
  explicit Fork(const std::function<bool()>& act) {
    EXPECT_EQ(::pipe(channel_), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const char done = act() ? 'y' : 'n';
      if (::write(channel_[1], &done, 1) == 1) ::pause();
      ::_exit(0);
    }
    char done = 'n';
    EXPECT_EQ(::read(channel_[0], &done, 1), 1);
    EXPECT_EQ(done, 'y');
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;
  ~Fork() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(channel_[0]);
    ::close(channel_[1]);
  }
  pid_t pid() const { return pid_; }

 private:
  int channel_[2] = {};
  pid_t pid_ = 0;
};

TEST_F(StudyFolderTest, ASecondOwnerInTheProcessIsRefused) {
  const auto first = StudyFolder::open(study_, Use::own);
  ASSERT_TRUE(first.ok()) << first.error().what();
  const auto second = StudyFolder::open(root_ + "/./study/", Use::own);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), Code::unavailable);
  EXPECT_NE(second.error().message().find(pid_text(::getpid())), std::string::npos);
  // The refused call has not given up the first one's lock.
  Fork other([&] { return !StudyFolder::open(study_, Use::own).ok(); });
}

TEST_F(StudyFolderTest, AnotherOwnerIsNamedWithPidAndHost) {
  {
    Fork owner([&] {
      static auto folder = StudyFolder::open(study_, Use::own);
      return folder.ok();
    });
    EXPECT_NE(refusal().find(pid_text(owner.pid())), std::string::npos) << refusal();
    fs::create_directory(study_ + "/store");
    EXPECT_NE(refusal(Use::read).find(pid_text(owner.pid())), std::string::npos);
  }
  EXPECT_EQ(refusal(), "");  // it was killed
}

TEST_F(StudyFolderTest, AForkOfTheOwnerHasNoLock) {
  auto folder = std::make_unique<StudyFolder>(StudyFolder::open(study_, Use::own).value());
  Fork fork([] { return true; });
  folder.reset();
  Fork other([&] {
    static auto next = StudyFolder::open(study_, Use::own);
    return next.ok();
  });
}

TEST_F(StudyFolderTest, AForkDoesNotEndItsParentsLock) {
  const auto folder = StudyFolder::open(study_, Use::own);
  ASSERT_TRUE(folder.ok());
  Fork fork([&] { return !StudyFolder::open(study_, Use::own).ok(); });
  Fork other([&] { return !StudyFolder::open(study_, Use::own).ok(); });
  EXPECT_TRUE(fs::exists(study_ + "/owner"));
}

TEST_F(StudyFolderTest, AnOwnerOnAnotherHostIsRefused) {
  make();
  EXPECT_FALSE(fs::exists(study_ + "/owner"));
  spill(study_ + "/owner", R"({"host":"elsewhere","pid":712})");
  EXPECT_NE(refusal().find("pid 712 on host elsewhere"), std::string::npos) << refusal();
  EXPECT_NE(refusal(Use::read).find("pid 712 on host elsewhere"), std::string::npos);
}

TEST_F(StudyFolderTest, ReadersShareAFolderAndAnOwnerWaitsForThem) {
  make();
  auto one = std::make_unique<StudyFolder>(StudyFolder::open(study_, Use::read).value());
  const auto two = StudyFolder::open(study_, Use::read);
  ASSERT_TRUE(two.ok());
  EXPECT_NE(refusal(), "");
  one.reset();
  Fork reader([&] { return StudyFolder::open(study_, Use::read).ok(); });
  Fork owner([&] { return !StudyFolder::open(study_, Use::own).ok(); });
}

TEST_F(StudyFolderTest, WhatIsNoFolderOfAStudyIsRefusedWithASentence) {
  EXPECT_NE(refusal(Use::read).find("does not exist"), std::string::npos);
  spill(study_, "a file");
  EXPECT_NE(refusal().find("is a file"), std::string::npos) << refusal();
  fs::remove(study_);
  fs::create_directory(study_);
  EXPECT_NE(refusal(Use::read).find("holds no study"), std::string::npos);
  spill(study_ + "/experiment.jsonl", "{}\n");
  EXPECT_NE(refusal().find("holds an experiment of version 2"), std::string::npos) << refusal();
}

TEST_F(StudyFolderTest, ReadOnlyAndForeignFoldersAreRefusedToOwners) {
  make();
  if (::geteuid() != 0) {
    fs::remove(study_ + "/lock");
    ASSERT_EQ(::chmod(study_.c_str(), 0555), 0);
    EXPECT_NE(refusal().find("cannot be written"), std::string::npos) << refusal();
    ASSERT_EQ(::chmod(study_.c_str(), 0755), 0);
    return;
  }
  ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
  Fork stranger([&] {
    return ::seteuid(65534) == 0 && refusal().find("belongs to user 0") != std::string::npos &&
           refusal(Use::read).empty();
  });
  ASSERT_EQ(::chown(study_.c_str(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(study_.c_str(), 0555), 0);
  fs::remove(study_ + "/lock");
  Fork owner([&] {
    return ::seteuid(65534) == 0 && refusal().find("cannot be written") != std::string::npos;
  });
}

TEST_F(StudyFolderTest, ALongPathHasASocketAddressThatWorks) {
  study_ = root_ + "/" + std::string(200, 'x') + "/study";
  const auto folder = StudyFolder::open(study_, Use::own);
  ASSERT_TRUE(folder.ok()) << folder.error().what();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder->socket_address();
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(fs::is_socket(study_ + "/socket"));
}

}  // namespace
}  // namespace troupe::tune
