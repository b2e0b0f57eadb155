// Tests keys. Key files are made and accepted only when no other user can read them. A token is
// read back as it was, and no other text is read. Secrets are wiped.
#include "troupe/runtime/net/keys.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace troupe::net {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "troupe-keys-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const char* name) const { return (path / name).string(); }
};

bool refused(const std::string& path, const char* why) {
  const Result<ClusterKey> key = load_cluster_key(path);
  return !key && key.error().message().find(why) != std::string::npos &&
         key.error().message().find(path) != std::string::npos;
}

TEST(Keys, AClusterKeyIsCreatedOnceWithMode0600AndReadBack) {
  const Folder folder;
  const std::string path = folder.file("key");
  Result<ClusterKey> made = create_cluster_key(path);
  ASSERT_TRUE(made) << made.error().message();
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  Result<ClusterKey> loaded = load_cluster_key(path);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_TRUE(*made == *loaded);
  EXPECT_FALSE(*create_cluster_key(folder.file("other")) == *loaded);
  const Result<ClusterKey> again = create_cluster_key(path);
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message().find("exists"), std::string::npos);
}

TEST(Keys, UnsafeFilesAreRefusedWithTheReason) {
  const Folder folder;
  const std::string path = folder.file("key");
  ASSERT_TRUE(create_cluster_key(path));
  for (mode_t mode : {0640u, 0604u, 0620u, 0666u}) {
    chmod(path.c_str(), mode);
    EXPECT_TRUE(refused(path, "group or world")) << mode;
  }
  chmod(path.c_str(), 0600);
  ASSERT_TRUE(load_cluster_key(path));
  fs::create_symlink(path, folder.path / "link");
  EXPECT_TRUE(refused(folder.file("link"), "symbolic link"));
  EXPECT_TRUE(refused(folder.file("absent"), "No such file"));
  EXPECT_TRUE(refused(folder.path.string(), "not a plain file"));
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, 0), 0);
    EXPECT_TRUE(refused(path, "belongs to uid 12345"));
  }
}

TEST(Keys, BrokenContentIsRefusedWithoutShowingIt) {
  const Folder folder;
  auto write = [&](const std::string& content) {
    const std::string path = folder.file("broken");
    std::ofstream(path, std::ios::trunc) << content;
    chmod(path.c_str(), 0600);
    return path;
  };
  EXPECT_TRUE(refused(write(""), "empty"));
  const std::string secret(64, 'a');
  for (const std::string& text :
       {std::string("x"), secret, "troupe-key-1 " + secret, "troupe-key-1 " + secret + "\n\n",
        "troupe-key-1 " + std::string(64, 'g') + "\n", "troupe-key-2 " + secret + "\n"}) {
    const std::string path = write(text);
    EXPECT_TRUE(refused(path, "does not hold a troupe key")) << text;
    EXPECT_EQ(load_cluster_key(path).error().message().find(secret), std::string::npos);
  }
}

TEST(Keys, NodeKeysRoundTrip) {
  const Folder folder;
  Result<CurveKeys> made = create_node_keys(folder.file("node"));
  ASSERT_TRUE(made) << made.error().message();
  Result<CurveKeys> loaded = load_node_keys(folder.file("node"));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(made->public_key, loaded->public_key);
  EXPECT_TRUE(made->secret_key == loaded->secret_key);
  EXPECT_EQ(PublicKey::parse(made->public_key.str()).value(), made->public_key);
  EXPECT_FALSE(PublicKey::parse("12"));
}

TEST(Keys, ATokenSurvivesTheTripAndNothingElseDoes) {
  CurveKeys head = CurveKeys::generate().value(), once = CurveKeys::generate().value();
  JoinToken token{"tcp://10.1.2.3:6500", head.public_key, once.secret_key.copy()};
  const std::string text = encode(token);
  EXPECT_EQ(text.find_first_of(" \n\t"), std::string::npos);
  Result<JoinToken> back = decode_join_token(text);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->door, token.door);
  EXPECT_EQ(back->head, head.public_key);
  EXPECT_EQ(CurveKeys::from_secret(std::move(back->one_time))->public_key, once.public_key);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = other[i] == '0' ? '1' : '0';
    EXPECT_FALSE(decode_join_token(other)) << i;
    EXPECT_FALSE(decode_join_token(text.substr(0, i)));
  }
  EXPECT_FALSE(decode_join_token(text + std::string(2000, '0')));
}

TEST(Keys, ASecretIsWipedWhenItMovesAndWhenItDies) {
  alignas(Secret<32>) unsigned char memory[sizeof(Secret<32>)];
  auto* secret = new (memory) Secret<32>;
  std::memset(secret->data(), 0x5a, 32);
  Secret<32> moved = std::move(*secret);
  EXPECT_EQ(static_cast<int>(moved.data()[31]), 0x5a);
  const unsigned char zero[32] = {};
  EXPECT_EQ(std::memcmp(memory, zero, 32), 0);
  *secret = std::move(moved);
  secret->~Secret();
  EXPECT_EQ(std::memcmp(memory, zero, 32), 0);
}

}  // namespace
}  // namespace troupe::net
