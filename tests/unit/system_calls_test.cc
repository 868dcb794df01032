// Calls of the system that fail: opening and converting a checkpoint end with an error that names the file, and leave the disk
// as it was.
#include <cerrno>
#include <climits>

#include "convert_files.h"
#include "failing_calls.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin {
namespace {

using testing::FailingCall;
using testing::ScratchFolder;

class SystemCalls : public ::testing::Test {
 protected:
  static constexpr int64_t kN = 64, kK = 128;  // for every scheme

  void SetUp() override {
    std::filesystem::create_directory(scratch_.at("in"));
    testing::write_file(scratch_.at("in/model.safetensors"),
                        testing::safetensors({{"a.weight", "F32", "64,128", testing::random_floats(kN, kK, "F32", 1)},
                                              {"b.weight", "F32", "64,128", testing::random_floats(kN, kK, "F32", 2)},
                                              {"norm.weight", "F32", "4", testing::bytes_of<float>({1, 2, 3, 4})}}));
  }
  Status open(const std::string& name) { return Checkpoint::open(scratch_.at(name), MARLIN_LAYOUT_AUTO).status(); }
  Status convert(marlin_scheme scheme, const std::string& to, uint64_t shard_bytes = 0) {
    const auto input = Checkpoint::open(scratch_.at("in"), MARLIN_LAYOUT_AUTO).take();
    ConvertOptions how;
    how.scheme = scheme;
    how.format = scheme == MARLIN_SCHEME_GGUF ? MARLIN_FORMAT_NVFP4 : MARLIN_FORMAT_INT4;
    how.asymmetric = scheme == MARLIN_SCHEME_COMPRESSED_TENSORS || scheme == MARLIN_SCHEME_GPTQ;
    if (scheme == MARLIN_SCHEME_MARLIN_24) how.sparsity = Sparsity::prune;
    how.shard_bytes = shard_bytes;
    how.layers = testing::layers_called(*input, {"a", "b"});
    return convert_checkpoint(*input, scratch_.at(to), how);
  }

  ScratchFolder scratch_;
};

TEST_F(SystemCalls, OpeningSaysWhichFailed) {
  const std::tuple<const char*, const char*, const char*> calls[] = {
      {"opendir", "in", "cannot list the folder"},     {"readdir", "in", "cannot list the folder"},
      {"open", "in/model.safetensors", "cannot open"}, {"fstat", "in/model.safetensors", "cannot examine"},
      {"mmap", "in/model.safetensors", "cannot map"},
  };
  for (const auto& [call, path, what] : calls) {
    SCOPED_TRACE(call);
    const FailingCall failing(call, 0, EIO);
    const Status status = open(path);
    EXPECT_EQ(status.code(), MARLIN_E_FILE);
    EXPECT_EQ(status.native_code(), EIO);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(scratch_.at(path)), HasSubstr(what), HasSubstr(std::strerror(EIO))));
  }
  EXPECT_TRUE(open("in").ok());
  {
    const FailingCall failing("mmap", 0, ENODEV);  // of shared pages, which some file systems have not
    EXPECT_TRUE(open("in/model.safetensors").ok());
  }
  for (const char* call : {"opendir", "readdir"}) {
    const FailingCall failing(call, 0, ENOMEM);
    EXPECT_EQ(open("in").code(), MARLIN_E_MEMORY) << call;
  }
}

/// A config that is there but cannot be read is no absent config.
TEST_F(SystemCalls, AConfigThatCannotBeReadIsAnError) {
  for (const char* name : {"config.json", "quantize_config.json"}) {
    testing::write_file(scratch_.at(std::string("in/") + name), "{}");
    for (int at = 1; at < 4; ++at) {  // the shard is opened first
      const FailingCall failing("open", at, EACCES);
      const Status status = open("in/model.safetensors");
      EXPECT_EQ(status.code(), failing.calls() > at ? MARLIN_E_FILE : MARLIN_OK) << name << at << status.message();
      EXPECT_EQ(status.native_code(), failing.calls() > at ? EACCES : 0);
    }
    std::filesystem::remove(scratch_.at(std::string("in/") + name));
  }
}

TEST_F(SystemCalls, ConvertingLeavesTheDiskAsItWas) {
  for (const marlin_scheme scheme :
       {MARLIN_SCHEME_COMPRESSED_TENSORS, MARLIN_SCHEME_GPTQ, MARLIN_SCHEME_MARLIN_24, MARLIN_SCHEME_GGUF, MARLIN_SCHEME_MLX}) {
    for (const char* call : {"pwrite", "fsync"}) {
      int failures = 0;
      for (int at = 0;; ++at) {
        SCOPED_TRACE(::testing::Message() << "scheme " << scheme << ", " << call << " " << at);
        ASSERT_LT(at, 40);
        const FailingCall failing(call, at, EIO);
        const Status status = convert(scheme, "out" + std::to_string(at));
        if (status.ok()) break;  // the last fsync is of the folder, and does not matter
        ++failures;
        EXPECT_THAT(status, Fails(MARLIN_E_FILE, AllOf(HasSubstr("cannot write"), HasSubstr(std::strerror(EIO)))));
        EXPECT_EQ(scratch_.names(), std::set<std::string>{"in"});
      }
      EXPECT_GE(failures, call[0] == 'p' ? 6 : 1);  // the header, two tensors of two layers, the vector
      for (const std::string& name : scratch_.names())
        if (name != "in") std::filesystem::remove_all(scratch_.at(name));
    }
  }
}

TEST_F(SystemCalls, APlaceThatCannotBeExaminedOrMadeIsAnError) {
  const std::tuple<const char*, int, const char*> calls[] = {
      {"lstat", 0, "cannot examine"},
      {"lstat", 2, "cannot examine"},  // when the names are given
      {"lstat", 4, "cannot examine"},
      {"mkdir", 0, "cannot make the folder"},
  };
  for (const auto& [call, at, what] : calls) {
    SCOPED_TRACE(::testing::Message() << call << " " << at);
    const FailingCall failing(call, at, EACCES);
    EXPECT_THAT(convert(MARLIN_SCHEME_COMPRESSED_TENSORS, "out"),
                Fails(MARLIN_E_FILE, AllOf(HasSubstr(what), HasSubstr(std::strerror(EACCES)))));
    EXPECT_EQ(scratch_.names(), std::set<std::string>{"in"});
  }
  // The first call of stat() looks for the input.
  const FailingCall failing("stat", 1, EACCES);
  const Status status = convert(MARLIN_SCHEME_COMPRESSED_TENSORS, "out");
  EXPECT_THAT(status.message(), AllOf(HasSubstr(scratch_.at("out")), HasSubstr("cannot examine")));
}

TEST_F(SystemCalls, ADiskWithoutRoomIsFullBeforeTheWork) {
  for (const int number : {ENOSPC, EFBIG, EDQUOT}) {
    const FailingCall failing("fallocate", 0, number);
    const Status status = convert(MARLIN_SCHEME_GGUF, "out.gguf");
    EXPECT_EQ(status.native_code(), number);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("out.gguf: cannot take room for the file"), HasSubstr(std::strerror(number))));
  }
  // A disk that reserves nothing lengthens the file.
  const FailingCall no_reserving("fallocate", 0, EOPNOTSUPP);
  {
    const FailingCall failing("ftruncate", 0, EIO);
    EXPECT_THAT(convert(MARLIN_SCHEME_GGUF, "out.gguf").message(), HasSubstr("cannot take room for the file"));
  }
  const FailingCall again("fallocate", 0, EOPNOTSUPP);
  EXPECT_TRUE(convert(MARLIN_SCHEME_GGUF, "out.gguf").ok());
  EXPECT_EQ(again.calls(), 1);
  EXPECT_EQ(scratch_.names(), (std::set<std::string>{"in", "out.gguf"}));
}

TEST_F(SystemCalls, AWriteThatASignalEndsIsRepeatedAndOneOfNothingIsAFullDisk) {
  ASSERT_TRUE(convert(MARLIN_SCHEME_GGUF, "expected.gguf").ok());
  {
    const FailingCall failing("pwrite", 1, EINTR);
    EXPECT_TRUE(convert(MARLIN_SCHEME_GGUF, "out.gguf").ok());
  }
  EXPECT_EQ(testing::read_file(scratch_.at("out.gguf")), testing::read_file(scratch_.at("expected.gguf")));
  const FailingCall failing("pwrite", 1, 0);
  const Status status = convert(MARLIN_SCHEME_GGUF, "none.gguf");
  EXPECT_EQ(status.native_code(), ENOSPC);
  EXPECT_THAT(status.message(), HasSubstr("none.gguf: cannot write"));
}

/// Without files that have no name yet, the file has a temporary one from its beginning.
TEST_F(SystemCalls, ATemporaryNameThatIsTakenIsPassedOver) {
  const FailingCall input("open", INT_MAX, EIO);
  ASSERT_TRUE(open("in").ok());
  const int before = input.calls();  // of the output's first
  const FailingCall no_nameless("open", before, EOPNOTSUPP);
  {
    const FailingCall failing("open", before + 1, EACCES);
    const Status status = convert(MARLIN_SCHEME_GGUF, "out.gguf");
    EXPECT_THAT(status.message(), AllOf(HasSubstr("out.gguf: cannot create"), HasSubstr(std::strerror(EACCES))));
  }
  const FailingCall again("open", before, EOPNOTSUPP), taken("open", before + 1, EEXIST);
  EXPECT_TRUE(convert(MARLIN_SCHEME_GGUF, "out.gguf").ok());
  EXPECT_GT(taken.calls(), before + 2);
  EXPECT_EQ(scratch_.names(), (std::set<std::string>{"in", "out.gguf"}));
}

}  // namespace
}  // namespace metal_marlin
