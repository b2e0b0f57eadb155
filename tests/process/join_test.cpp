// Tests which cluster a session joins, and every way in which joining can go wrong.
#include "troupe/runtime/version.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace join_test {
namespace {

namespace fs = std::filesystem;

class Join : public testing::Test {
 protected:
  void SetUp() override {
    std::string text = testing::TempDir() + "troupe-join-XXXXXX";
    ASSERT_NE(mkdtemp(text.data()), nullptr);
    folder = text;
  }
  void TearDown() override {
    unsetenv("TROUPE_ADDRESS");
    fs::remove_all(folder);
  }
  std::string path() const { return (folder / "cluster.json").string(); }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path()) << text;
    chmod(path().c_str(), mode);
  }
  /// Returns a cluster file as `troupe up` writes it.
  static std::string file(const std::string& socket,
                          std::uint32_t protocol = troupe::kProtocolVersion) {
    const std::string id(32, '1');
    return "{\"format\": 1, \"version\": \"0.1.0\", \"protocol\": " + std::to_string(protocol) +
           ", \"cluster\": \"" + id + "\", \"node\": \"" + id +
           "\", \"nodeName\": \"node-0\", \"socketName\": \"" + socket +
           "\", \"controlDoor\": \"tcp://127.0.0.1:1\", \"nodes\": 1, \"launcher\": 1, "
           "\"launched\": 1}";
  }
  template <class E>
  std::string refusal(const troupe::SessionOptions& options) const {
    try {
      troupe::Session session(options);
      ADD_FAILURE() << "no error";
    } catch (const E& error) {
      return error.message();
    } catch (const troupe::Error& error) {
      ADD_FAILURE() << error.what();
    }
    return "";
  }
  template <class E>
  std::string refusal() const {
    return refusal<E>({.address = path()});
  }
  fs::path folder;
};

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Join, AMissingFileSaysWhereItsNameCameFrom) {
  setenv("TROUPE_ADDRESS", path().c_str(), 1);
  const std::string why = refusal<troupe::Unavailable>({});
  EXPECT_TRUE(says(why, "TROUPE_ADDRESS=" + path())) << why;
  EXPECT_TRUE(says(why, "troupe up")) << why;
  EXPECT_TRUE(says(refusal<troupe::Unavailable>(), path()));
}

TEST_F(Join, AFileThatOthersMayReadIsRefused) {
  write(file("troupe-nobody"), 0644);
  EXPECT_TRUE(says(refusal<troupe::InvalidArgument>(), "chmod 600"));
}

TEST_F(Join, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  write(file("troupe-nobody"));
  ASSERT_EQ(chown(path().c_str(), 65534, 65534), 0);
  EXPECT_TRUE(says(refusal<troupe::InvalidArgument>(), "65534"));
}

TEST_F(Join, AMalformedFileIsRefused) {
  for (const char* text : {"", "[]", "{}", "{\"format\": 1}", "\177ELF"}) {
    write(text);
    EXPECT_TRUE(says(refusal<troupe::InvalidArgument>(), path())) << text;
  }
}

TEST_F(Join, AnotherProtocolIsNamed) {
  write(file("troupe-nobody", 77));
  const std::string why = refusal<troupe::InvalidArgument>();
  EXPECT_TRUE(says(why, "77")) << why;
  EXPECT_TRUE(says(why, "the same troupe on both sides")) << why;
}

TEST_F(Join, AClusterThatEndedIsToldAtOnce) {
  write(file("troupe-nobody-is-there"));
  const std::string why = refusal<troupe::Unavailable>();
  EXPECT_TRUE(says(why, "nobody answers")) << why;
  EXPECT_TRUE(says(why, "troupe status")) << why;
}

TEST_F(Join, WhoClosesTheDoorAtOnceIsToldToo) {
  const std::string name = "troupe-test-" + std::to_string(getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(door, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(door, 1), 0);
  write(file(name));
  std::thread closer([&] { close(accept(door, nullptr, nullptr)); });
  EXPECT_TRUE(says(refusal<troupe::Unavailable>(), "closed the connection"));
  closer.join();
  close(door);
}

TEST_F(Join, NodesAndAnAddressTogetherAreRefused) {
  const std::string why = refusal<troupe::InvalidArgument>({.nodes = 2, .address = path()});
  EXPECT_TRUE(says(why, "either")) << why;
}

TEST_F(Join, CpusAndMemoryAreNotThoseOfAClusterThatRuns) {
  const std::string why = refusal<troupe::InvalidArgument>({.cpus = 2, .address = path()});
  EXPECT_TRUE(says(why, "one or the other")) << why;
}

TEST_F(Join, ATokenThatIsNoneIsRefusedAndNotShown) {
  const std::string token = "troupe1-00112233445566778899aabbccddeeff";
  const std::string why = refusal<troupe::InvalidArgument>({.address = token});
  EXPECT_TRUE(says(why, "join token")) << why;
  EXPECT_FALSE(says(why, token)) << why;
}

TEST_F(Join, StoresThatThisMachineCannotHaveAreRefused) {
  EXPECT_TRUE(says(refusal<troupe::InvalidArgument>({.memory = troupe::Bytes{1}}), "at least"));
  const troupe::Bytes huge{std::uint64_t{1} << 52};
  EXPECT_TRUE(says(refusal<troupe::InvalidArgument>({.memory = huge}), "at most"));
  EXPECT_TRUE(says(refusal<troupe::InvalidArgument>({.memory = huge, .nodes = 2}), "at most"));
}

int twice(int x) {
  return 2 * x;
}

TEST_F(Join, WithoutAnAddressTheClusterIsPrivate) {
  setenv("TROUPE_ADDRESS", "", 1);
  troupe::Session session({.cpus = 1});
  troupe::Context ctx = session.context();
  EXPECT_EQ(ctx.get(ctx.submit<twice>(21)), 42);
}

}  // namespace
}  // namespace join_test
