// The file of --logits: whole or not at all, and never in place of anything that must stay.
#include "examples/llm/npy_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace llm {
namespace {

namespace fs = std::filesystem;

class NpyFileTest : public ::testing::Test {
 protected:
  NpyFileTest() {
    std::string name = (fs::temp_directory_path() / "metal-marlin-llm-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    folder_ = name;
  }
  ~NpyFileTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  static std::string get(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  auto entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }
  static void write(const std::string& path, bool force, const std::vector<std::string>& inputs) {
    const float values[] = {1, 2, 3, 4, 5, 6};
    NpyFile file(path, force, inputs);
    file.begin(2, 3);
    file.write(values);
    file.commit();
  }

  fs::path folder_;
};

TEST_F(NpyFileTest, AppearsWhenItIsComplete) {
  {
    NpyFile file(at("x.npy"), false, {});
    file.begin(1, 1);
    EXPECT_FALSE(fs::exists(at("x.npy")));
  }
  EXPECT_EQ(entries(), 0);
  write(at("x.npy"), false, {});
  const std::string text = get(at("x.npy"));
  EXPECT_EQ(text.size(), 128 + 6 * sizeof(float));
  EXPECT_NE(text.find("'shape': (2, 3)"), std::string::npos);
  EXPECT_EQ(entries(), 1);
}

TEST_F(NpyFileTest, ReplacesByForceOnly) {
  put(at("x.npy"), "precious");
  EXPECT_THROW(write(at("x.npy"), false, {}), std::runtime_error);
  EXPECT_EQ(get(at("x.npy")), "precious");
  write(at("x.npy"), true, {});
  EXPECT_NE(get(at("x.npy")), "precious");
  EXPECT_EQ(entries(), 1);
}

TEST_F(NpyFileTest, KeepsInputsAndWhatIsNoRegularFile) {
  fs::create_directory(at("model"));
  put(at("model/weights"), "weights");
  put(at("text"), "text");
  fs::create_hard_link(at("model/weights"), at("hard"));
  fs::create_symlink(at("text"), at("soft"));
  fs::create_symlink(at("nothing"), at("dangling"));
  for (const char* name : {"model/weights", "hard", "text", "soft", "dangling", "model"}) {
    EXPECT_THROW(write(at(name), true, {at("model"), "", at("text")}), std::runtime_error) << name;
  }
  EXPECT_EQ(get(at("model/weights")), "weights");
  EXPECT_EQ(get(at("text")), "text");
  EXPECT_TRUE(fs::is_symlink(at("dangling")));
  EXPECT_EQ(entries(), 5);
}

}  // namespace
}  // namespace llm
