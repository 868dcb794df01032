// The library as a plugin: dlopen with RTLD_LOCAL, one dlsym, calls, dlclose, again and again; and processes that fork. This
// program does not link the library.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "campaigns.h"
#include "metal_marlin/metal_marlin.h"
#include "test.h"
#include "unit/under_sanitizer.h"

namespace {

#if defined(MARLIN_UNDER_ASAN) || defined(MARLIN_UNDER_TSAN)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class Plugin {
 public:
  explicit Plugin(const char* path = MARLIN_LIBRARY) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto get_api = reinterpret_cast<decltype(&marlin_get_api)>(dlsym(library_, "marlin_get_api"));
    if (get_api != nullptr) api = get_api(MARLIN_ABI_MAJOR);
  }
  ~Plugin() {
    if (library_ != nullptr) dlclose(library_);
  }
  Plugin(const Plugin&) = delete;

  const marlin_api* api = nullptr;

 private:
  void* library_;
};

/// Packs, multiplies on a stream and without, takes everything down. An empty text when all went well.
std::string main_job(const marlin_api& api, uint32_t threads) {
  marlin_error err{};
  err.struct_size = sizeof err;
  marlin_context_desc context_desc{};
  context_desc.struct_size = sizeof context_desc;
  context_desc.threads = threads;
  marlin_context* context = nullptr;
  if (api.context_create(&context_desc, &context, &err) != MARLIN_OK) return err.message;

  const int64_t n = 200, k = 128;
  const std::vector<float> w(n * k, 3.0f), x(k, 2.0f);
  std::vector<float> y(n);
  marlin_pack_desc part{};
  part.struct_size = sizeof part;
  part.format = MARLIN_FORMAT_MXFP4;
  part.n = n;
  part.k = k;
  part.values = {const_cast<float*>(w.data()), 0, n, k, 0, MARLIN_F32, MARLIN_MEM_HOST};
  const marlin_pack_desc* const parts[] = {&part};
  marlin_weights* weights = nullptr;
  marlin_stream* stream = nullptr;
  marlin_gemm_desc product{};
  product.struct_size = sizeof product;
  product.a = {const_cast<float*>(x.data()), 0, 1, k, 0, MARLIN_F32, MARLIN_MEM_HOST};
  product.c = {y.data(), 0, 1, n, 0, MARLIN_F32, MARLIN_MEM_HOST};
  marlin_status status = api.weights_pack(context, parts, 1, 1, &weights, &err);
  product.weights = weights;
  if (status == MARLIN_OK) status = api.stream_create(context, nullptr, &stream, &err);
  if (status == MARLIN_OK) status = api.gemm(stream, &product, &err);
  if (status == MARLIN_OK) status = api.stream_wait(stream, UINT64_MAX, &err);
  if (status == MARLIN_OK) status = api.gemm(nullptr, &product, &err);
  api.context_destroy(context);
  api.stream_destroy(stream);
  api.weights_destroy(weights);
  if (status != MARLIN_OK) return err.message;
  for (const float v : y)
    if (v != 3.0f * 2.0f * k) return "a wrong product";
  return "";
}

size_t threads_of_this_process() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

/// Waits until this thread is the only one that runs. A thread that starts may hold a lock of the C library or a sanitizer, for
/// which the child of a fork would wait forever.
bool others_sleep() {
  const auto sleeps = [](const std::filesystem::path& task) {
    std::ifstream file(task / "stat");
    std::string text;
    std::getline(file, text);
    const size_t name_ends = text.rfind(')');
    return name_ends == std::string::npos || text.compare(name_ends, 3, ") S") == 0;
  };
  for (int i = 0; i < 10000; ++i, usleep(1000)) {
    bool all = true;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      all = all && (task.path().filename() == std::to_string(gettid()) || sleeps(task.path()));
    if (all) return true;
  }
  return false;
}

/// A joined thread may stay listed for a moment.
bool back_to(size_t threads) {
  for (int i = 0; i < 1000 && threads_of_this_process() != threads; ++i) usleep(1000);
  return threads_of_this_process() == threads;
}

size_t resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") {
      size_t kilobytes;
      status >> kilobytes;
      return kilobytes;
    }
  return 0;
}

size_t mapped(const char* part) {
  std::ifstream maps("/proc/self/maps");
  size_t lines = 0;
  for (std::string line; std::getline(maps, line);) lines += line.find(part) != std::string::npos;
  return lines;
}

TEST(PluginTest, LoadCallUnloadLeavesNothing) {
  const size_t threads = threads_of_this_process();
  const int64_t usual = kSanitized ? 20 : (whole_campaigns() ? 10000 : 300);
  const Soak soak;
  size_t early = SIZE_MAX / 2;
  int loops = 0;
  for (; soak.goes_on(loops, usual); ++loops) {
    {
      const Plugin plugin;
      ASSERT_NE(plugin.api, nullptr) << dlerror();
      ASSERT_EQ(main_job(*plugin.api, 3), "");
    }
    if (loops == 150) early = resident_kilobytes();
  }
  EXPECT_TRUE(back_to(threads)) << threads_of_this_process() << " threads, expected " << threads;
  EXPECT_EQ(mapped("libmetal-marlin"), 0u) << "dlclose did not unload the library";
  EXPECT_TRUE(kSanitized || resident_kilobytes() <= early + 512) << "memory grows with each load";
  RecordProperty("cases", loops);
}

TEST(PluginTest, LoadingDoesNothing) {
  const size_t threads = threads_of_this_process();
  const Plugin plugin;
  ASSERT_NE(plugin.api, nullptr);
  EXPECT_EQ(threads_of_this_process(), threads);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "marlin_get_api"), nullptr) << "RTLD_LOCAL must keep the symbols private";
}

TEST(PluginTest, AContextStartsNoThreadBeforeWorkAndDestroyJoinsThem) {
  const Plugin plugin;
  ASSERT_NE(plugin.api, nullptr);
  const size_t threads = threads_of_this_process();
  marlin_context_desc desc{};
  desc.struct_size = sizeof desc;
  desc.threads = 4;
  marlin_context* context = nullptr;
  ASSERT_EQ(plugin.api->context_create(&desc, &context, nullptr), MARLIN_OK);
  EXPECT_EQ(threads_of_this_process(), threads);
  plugin.api->context_destroy(context);
  ASSERT_EQ(main_job(*plugin.api, 4), "");
  EXPECT_TRUE(back_to(threads)) << threads_of_this_process() << " threads, expected " << threads;
}

TEST(PluginTest, TwoCopiesInOneProcessDoNotMeet) {
  const std::string copy = testing::TempDir() + "libmetal-marlin-copy-" + std::to_string(getpid()) + ".so";
  std::filesystem::copy_file(MARLIN_LIBRARY, copy, std::filesystem::copy_options::overwrite_existing);
  {
    const Plugin one, two(copy.c_str());
    ASSERT_NE(one.api, nullptr);
    ASSERT_NE(two.api, nullptr);
    EXPECT_NE(one.api, two.api);
    EXPECT_EQ(main_job(*one.api, 2), "");
    EXPECT_EQ(main_job(*two.api, 2), "");
  }
  std::filesystem::remove(copy);
}

/// A context and weights whose threads have worked, for children to go on with.
class Fork : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(plugin_.api, nullptr);
    marlin_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.threads = 3;
    ASSERT_EQ(plugin_.api->context_create(&desc, &context_, nullptr), MARLIN_OK);
    marlin_pack_desc part{};
    part.struct_size = sizeof part;
    part.format = MARLIN_FORMAT_INT4;
    part.n = 500;
    part.k = 64;
    part.values = {w_.data(), 0, 500, 64, 0, MARLIN_F32, MARLIN_MEM_HOST};
    const marlin_pack_desc* const parts[] = {&part};
    ASSERT_EQ(plugin_.api->weights_pack(context_, parts, 1, 1, &weights_, nullptr), MARLIN_OK);
    ASSERT_TRUE(multiply());
    ASSERT_TRUE(others_sleep());
  }
  void TearDown() override {
    plugin_.api->weights_destroy(weights_);
    plugin_.api->context_destroy(context_);
  }
  bool multiply() {
    marlin_gemm_desc product{};
    product.struct_size = sizeof product;
    product.weights = weights_;
    product.a = {x_.data(), 0, 2, 64, 0, MARLIN_F32, MARLIN_MEM_HOST};
    product.c = {y_.data(), 0, 2, 500, 0, MARLIN_F32, MARLIN_MEM_HOST};
    std::fill(y_.begin(), y_.end(), 0.0f);
    if (plugin_.api->gemm(nullptr, &product, nullptr) != MARLIN_OK) return false;
    for (const float v : y_)
      if (v != 64.0f * 7.0f) return false;
    return true;
  }

  const Plugin plugin_;
  marlin_context* context_ = nullptr;
  marlin_weights* weights_ = nullptr;
  std::vector<float> w_ = std::vector<float>(500 * 64, 7.0f), x_ = std::vector<float>(2 * 64, 1.0f),
                     y_ = std::vector<float>(2 * 500);
};

TEST_F(Fork, TheChildComputesAndTakesItsCopyDown) {
#if defined(MARLIN_UNDER_TSAN)
  GTEST_SKIP() << "ThreadSanitizer does not follow threads that a forked child starts";
#endif
  const Soak soak;
  int children = 0;
  for (; soak.goes_on(children, whole_campaigns() ? 1000 : 100); ++children) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(30);  // a hang is a failure, not a stuck test
      const bool right = multiply() && multiply();
      plugin_.api->weights_destroy(weights_);
      plugin_.api->context_destroy(context_);
      _exit(right && main_job(*plugin_.api, 2).empty() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "child " << children << " died of signal " << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0) << "child " << children;
    ASSERT_TRUE(multiply()) << "the parent, after child " << children;
  }
  RecordProperty("cases", children);
}

/// What a piece of work writes to the descriptors 1 and 2; a pipe holds it, so not more than 64 KiB.
template <class Work>
std::string printed_by(Work work) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  fflush(nullptr);
  const int saved[] = {dup(1), dup(2)};
  dup2(ends[1], 1);
  dup2(ends[1], 2);
  work();
  fflush(nullptr);
  for (const int fd : {1, 2}) {
    dup2(saved[fd - 1], fd);
    close(saved[fd - 1]);
  }
  close(ends[1]);
  std::string text;
  char piece[512];
  for (ssize_t length; (length = read(ends[0], piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(length));
  close(ends[0]);
  return text;
}

TEST(PluginTest, NothingIsPrinted) {
  ASSERT_EQ(printed_by([] { puts("seen"); }), "seen\n");
  EXPECT_EQ(printed_by([] {
              const Plugin plugin;
              main_job(*plugin.api, 2);
              marlin_checkpoint* file = nullptr;
              plugin.api->checkpoint_open("/nonexistent/x.safetensors", nullptr, &file, nullptr);
              plugin.api->gemm(nullptr, nullptr, nullptr);
              plugin.api->context_create(reinterpret_cast<const marlin_context_desc*>("\0\0\0\0"), nullptr, nullptr);
            }),
            "");
}

}  // namespace
