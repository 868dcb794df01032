// The host's floating-point modes change no byte of what the library computes or writes, and each call leaves them as they
// were, with the exception flags: rounding, flush-to-zero, traps; on the calling thread and on the host's own.
#include <stdlib.h>

#include <cfenv>

#include "model_files.h"
#include "support.h"
#include "test.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace abi_test::modes_tests {
namespace {

/// All that this thread's floating-point arithmetic depends on and leaves behind.
struct State {
  uint64_t modes = 0, flags = 0;
  friend bool operator==(const State&, const State&) = default;
};

#if defined(__x86_64__)
constexpr uint64_t kFlush = 0x8040, kTraps = 0x1f80, kFlags = 0x3f;  // of MXCSR; traps are where the bits are 0

State state() {
  uint16_t x87 = 0;
  __asm__ volatile("fnstcw %0" : "=m"(x87));
  return {(_mm_getcsr() & ~kFlags) | uint64_t{x87} << 32, _mm_getcsr() & kFlags};
}
void set_state(const State& s) {
  const auto x87 = static_cast<uint16_t>(s.modes >> 32);
  _mm_setcsr(static_cast<uint32_t>(s.modes | s.flags));
  __asm__ volatile("fldcw %0" : : "m"(x87));
}
State make_state(uint64_t rounding, bool flush, bool traps, uint64_t flags) {
  uint64_t modes = rounding << 13 | (flush ? kFlush : 0) | (traps ? 0 : kTraps);
  modes |= (uint64_t{0x340} | rounding << 10 | (traps ? 0 : 0x3f)) << 32;  // x87 has the same bits in other places
  return {modes, traps ? 0 : flags & kFlags};
}
#elif defined(__aarch64__)
State state() {
  State s;
  __asm__ volatile("mrs %0, fpcr" : "=r"(s.modes));
  __asm__ volatile("mrs %0, fpsr" : "=r"(s.flags));
  return s;
}
void set_state(const State& s) {
  __asm__ volatile("msr fpcr, %0" : : "r"(s.modes));
  __asm__ volatile("msr fpsr, %0" : : "r"(s.flags));
}
State make_state(uint64_t rounding, bool flush, bool traps, uint64_t flags) {
  const State before = state();
  set_state({rounding << 22 | (flush ? uint64_t{1} << 24 : 0) | (traps ? uint64_t{0x1f} << 8 : 0), flags & 0x1f});
  const State made = state();  // a processor may have no traps
  set_state(before);
  return made;
}
#else
State state() { return {static_cast<uint64_t>(std::fegetround()), 0}; }
void set_state(const State& s) { std::fesetround(static_cast<int>(s.modes)); }
State make_state(uint64_t rounding, bool, bool, uint64_t) {
  constexpr int kRoundings[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  return {static_cast<uint64_t>(kRoundings[rounding]), 0};
}
#endif

/// 4 roundings, with and without flush-to-zero, traps and flags that are set.
std::vector<State> host_states() {
  std::vector<State> states;
  for (uint64_t rounding = 0; rounding < 4; ++rounding)
    for (const bool flush : {false, true})
      for (const bool traps : {false, true}) states.push_back(make_state(rounding, flush, traps, rounding * 9));
  return states;
}

using Bytes = std::vector<uint8_t>;

/// Calls under one state of the host, collects what they give, and sees the state again after each call. While a call or what
/// is around it runs, nothing else may compute with floats: a trap would end the program.
class Host {
 public:
  explicit Host(const State& state) : state_(state) {}

  void run(const std::function<marlin_status()>& call) {
    const State before = state();
    set_state(state_);
    const marlin_status status = call();
    const State after = state();
    set_state(before);
    changed += !(after == state_);
    add(&status, sizeof status);
  }
  void add(const void* data, size_t size) {
    const auto* const p = static_cast<const uint8_t*>(data);
    given.insert(given.end(), p, p + size);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size() * sizeof(T));
  }

  Bytes given;
  int changed = 0;  ///< calls after which the state was another one

 private:
  const State state_;
};

/// Numbers of every size, exact halves between two codes among them.
std::vector<float> wide(size_t count, uint32_t seed) {
  std::vector<float> values = numbers(count, seed);
  for (size_t i = 0; i < count; ++i) {
    if (i % 7 == 3) values[i] = std::ldexp(values[i], -static_cast<int>(i % 140));
    if (i % 11 == 5) values[i] = std::round(values[i] * 8) / 4;
  }
  return values;
}

constexpr int64_t kN = 64, kK = 256;
constexpr marlin_format kFormats[] = {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4,
                                      MARLIN_FORMAT_INT8};
constexpr uint32_t kChoices[] = {0, MARLIN_PACK_SCALES_MSE, MARLIN_PACK_PRUNE_2_4,
                                 MARLIN_PACK_PRUNE_2_4 | MARLIN_PACK_SCALES_MSE};

void unpack(Host& host, const mm::weights& weights) {
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
    std::vector<float> rows(kN * kK);
    marlin_matrix out = mm::matrix_view(rows.data(), kN, kK);
    out.dtype = dtype;
    host.run([&] { return marlin_weights_unpack(nullptr, weights.get(), nullptr, 0, &out, nullptr); });
    host.add(rows);
  }
}

/// Quantizes, prunes, packs and unpacks.
void pack(Host& host, const mm::context& context) {
  const std::vector<float> values = wide(kN * kK, 3);
  std::vector<float> norms = numbers(kK, 4);
  for (float& norm : norms) norm = std::abs(norm);
  for (const marlin_format format : kFormats)
    for (const uint32_t flags : kChoices)
      for (const bool with_norms : {false, true}) {
        const bool prunes = (flags & MARLIN_PACK_PRUNE_2_4) != 0;
        if ((prunes && format == MARLIN_FORMAT_INT8) || (with_norms && !prunes)) continue;
        marlin_pack_desc desc = pack_desc(values, kN, kK, format);
        desc.flags = flags;
        if (with_norms) desc.column_norms = mm::matrix_view(norms.data(), 1, kK);
        const marlin_pack_desc* const parts[] = {&desc};
        mm::weights weights;
        auto info = mm::make<marlin_layer_info>();
        host.run([&] { return marlin_weights_pack(context.get(), parts, 1, 1, weights.out(), nullptr); });
        host.run([&] { return marlin_weights_info(weights.get(), &info, nullptr); });
        host.add(&info.kept_share, sizeof info.kept_share);
        unpack(host, weights);
      }
}

/// Products of every compute and epilogue, of few rows and of many; plain ones, several in a call and experts.
void multiply(Host& host, const mm::context& context) {
  constexpr int64_t kMost = 40;
  const std::vector<float> values = numbers(2 * kN * kK, 5), a = wide(kMost * kK, 6), bias = numbers(kN, 7);
  const std::vector<int32_t> ids(kMost, 1);
  for (const marlin_format format : kFormats) {
    const mm::weights weights = mm::pack(context, pack_desc(values, kN, kK, format));
    const mm::weights experts = mm::pack(context, std::vector<marlin_pack_desc>(2, pack_desc(values, kN, kK, format)), 2);
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
      for (marlin_epilogue epilogue = MARLIN_EPILOGUE_NONE; epilogue <= MARLIN_EPILOGUE_SITU; ++epilogue)
        for (const int64_t m : {int64_t{1}, int64_t{5}, kMost}) {
          const int64_t columns = epilogue >= MARLIN_EPILOGUE_SWIGLU ? kN / 2 : kN;
          std::vector<float> c(static_cast<size_t>(2 * m * columns), 0.3f);
          auto desc = mm::make<marlin_gemm_desc>();
          desc.weights = weights.get();
          desc.compute = compute;
          desc.epilogue = epilogue;
          if (epilogue == MARLIN_EPILOGUE_SITU) desc.gate_limit = desc.up_limit = 2;
          desc.flags = MARLIN_GEMM_ACCUMULATE;
          desc.a = mm::matrix_view(a.data(), m, kK);
          desc.c = mm::matrix_view(c.data(), m, columns);
          desc.bias = mm::matrix_view(bias.data(), 1, kN);
          marlin_gemm_desc mixture = desc;
          mixture.weights = experts.get();
          mixture.c = mm::matrix_view(c.data() + m * columns, m, columns);
          mixture.expert_ids = mm::matrix_view(ids.data(), m, 1);
          mixture.expert_scales = mm::matrix_view(a.data() + 1, m, 1);
          const marlin_gemm_desc* const both[] = {&desc, &mixture};
          uint64_t bytes = 0;
          host.run([&] { return marlin_prepare(nullptr, both, 2, m, &bytes, nullptr); });
          host.run([&] { return marlin_gemm(nullptr, &desc, nullptr); });
          host.run([&] { return marlin_gemm_many(nullptr, both, 2, nullptr); });
          host.add(c);
          char text[2000] = {};
          host.run([&] { return marlin_explain(&mixture, text, sizeof text, nullptr, nullptr); });
          host.add(text, sizeof text);
        }
  }
}

/// A folder with a checkpoint of floats, removed at the end.
class Files {
 public:
  Files() {
    std::string name = (std::filesystem::temp_directory_path() / "metal-marlin-modes-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    folder_ = name;
    const std::vector<float> values = wide(kN * kK, 8);
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    std::ofstream(model(), std::ios::binary) << model_files::safetensors({{"layer.weight", "F32", "64,256", bytes}});
    std::ofstream(folder_ / "config.json") << R"({"rope_theta": 10000.1, "eps": 1e-05, "x": 0.1})";
  }
  ~Files() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Files(const Files&) = delete;
  std::string model() const { return (folder_ / "model.safetensors").string(); }
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

/// Quantizes and prunes while it loads.
void load(Host& host, const mm::context& context, const Files& files) {
  mm::checkpoint file;
  const std::string path = files.model();
  host.run([&] { return marlin_checkpoint_open(path.c_str(), nullptr, file.out(), nullptr); });
  const char* const names[] = {"layer"};
  for (const marlin_format format : kFormats)
    for (const uint32_t flags : kChoices) {
      auto desc = mm::make<marlin_load_desc>();
      desc.format = format;
      desc.flags = flags;
      desc.layers = names;
      desc.layer_count = 1;
      mm::weights weights;
      host.run([&] { return marlin_weights_load(context.get(), file.get(), &desc, weights.out(), nullptr); });
      if (weights) unpack(host, weights);
    }
}

struct Outcomes {
  Host* host;
  static void add(void* user, const marlin_convert_outcome* outcome) {
    for (const double* x : {&outcome->squared_error, &outcome->squared_norm, &outcome->kept_norm})
      static_cast<Outcomes*>(user)->host->add(x, sizeof *x);
  }
};

void run_loop(void*, uint32_t tasks, void (*task)(void*, uint32_t), void* task_user) {
  for (uint32_t i = 0; i < tasks; ++i) task(task_user, i);
}

/// Writes every scheme's files.
void convert(Host& host, const Files& files) {
  struct Kind {
    marlin_scheme scheme;
    marlin_format format;
    uint32_t flags;
  };
  constexpr Kind kKinds[] = {{MARLIN_SCHEME_COMPRESSED_TENSORS, MARLIN_FORMAT_NVFP4, MARLIN_CONVERT_SCALES_MSE},
                             {MARLIN_SCHEME_COMPRESSED_TENSORS, MARLIN_FORMAT_INT4, MARLIN_CONVERT_ASYMMETRIC},
                             {MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4, 0},
                             {MARLIN_SCHEME_MARLIN_24, MARLIN_FORMAT_INT4, MARLIN_CONVERT_PRUNE_2_4},
                             {MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0},
                             {MARLIN_SCHEME_GGUF, MARLIN_FORMAT_NVFP4, MARLIN_CONVERT_PRUNE_2_4}};
  mm::checkpoint file(files.folder());
  const char* const names[] = {"layer"};
  for (const Kind& kind : kKinds)
    for (const bool parallel : {false, true}) {
      auto desc = mm::make<marlin_convert_desc>();
      desc.scheme = kind.scheme;
      desc.format = kind.format;
      desc.flags = kind.flags;
      desc.layers = names;
      desc.layer_count = 1;
      Outcomes outcomes{&host};
      desc.user = &outcomes;
      desc.layer_done = Outcomes::add;
      if (parallel) desc.parallel_for = run_loop;
      const std::string out = files.folder() + "/out";
      host.run([&] { return marlin_checkpoint_convert(file.get(), out.c_str(), &desc, nullptr); });
      if (!std::filesystem::is_directory(out)) continue;
      std::vector<std::filesystem::path> paths;
      for (const auto& entry : std::filesystem::directory_iterator(out)) paths.push_back(entry.path());
      std::sort(paths.begin(), paths.end());
      for (const auto& path : paths) {
        std::ostringstream text;
        text << std::ifstream(path, std::ios::binary).rdbuf();
        host.add(text.str().data(), text.str().size());
      }
      std::filesystem::remove_all(out);
    }
}

marlin_context_desc two_threads() {
  auto desc = mm::make<marlin_context_desc>();
  desc.backend = MARLIN_BACKEND_CPU;
  desc.threads = 2;
  return desc;
}

/// The same bytes in every state as in the default one, and the same state after every call.
void expect_the_same(const std::function<void(Host&)>& work) {
  Host plain(make_state(0, false, false, 0));
  work(plain);
  ASSERT_FALSE(plain.given.empty());
  for (const State& state : host_states()) {
    SCOPED_TRACE(testing::Message() << std::hex << "modes " << state.modes << ", flags " << state.flags);
    Host host(state);
    work(host);
    EXPECT_EQ(host.changed, 0);
    EXPECT_TRUE(host.given == plain.given);
  }
}

TEST(Modes, PackingQuantizingPruningAndUnpacking) {
  const mm::context context(two_threads());
  expect_the_same([&](Host& host) { pack(host, context); });
}

TEST(Modes, Products) {
  const mm::context context(two_threads());
  expect_the_same([&](Host& host) { multiply(host, context); });
}

TEST(Modes, Loading) {
  const mm::context context(two_threads());
  const Files files;
  expect_the_same([&](Host& host) { load(host, context, files); });
}

TEST(Modes, Converting) {
  const Files files;
  expect_the_same([&](Host& host) { convert(host, files); });
}

/// The threads of a pool are made in the state that the first call finds.
TEST(Modes, OfTheThreadThatStartsThePool) {
  expect_the_same([&](Host& host) {
    mm::context context;
    const marlin_context_desc desc = two_threads();
    host.run([&] { return marlin_context_create(&desc, context.out(), nullptr); });
    pack(host, context);
  });
}

/// A host whose own threads run in modes of their own, and which looks at the modes in each callback.
struct Watcher {
  std::vector<State> states = host_states();
  std::atomic<int> wrong_in_callback{0}, changed_by_task{0}, calls{0};
  std::atomic<uint32_t> next{0};

  void see() {
    ++calls;
    wrong_in_callback += state().modes != make_state(0, false, false, 0).modes;
  }
  void loop(uint32_t tasks, void (*task)(void*, uint32_t), void* task_user) {
    see();
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        const State own = states[next++ % states.size()];
        for (uint32_t i = t; i < tasks; i += 2) {
          const State before = state();
          set_state(own);
          task(task_user, i);
          const State after = state();
          set_state(before);
          changed_by_task += !(after == own);
        }
      });
    for (std::thread& thread : threads) thread.join();
    set_state(states[next++ % states.size()]);  // and does not put back its own
  }
  static Watcher& of(void* user) { return *static_cast<Watcher*>(user); }
};

marlin_context_desc watched(Watcher& watcher) {
  marlin_context_desc desc = two_threads();
  desc.user = &watcher;
  desc.alloc = [](void* user, size_t size, size_t align) {
    Watcher::of(user).see();
    return std::aligned_alloc(align, size);
  };
  desc.release = [](void*, void* p, size_t) { std::free(p); };
  desc.log = [](void* user, int32_t, const char*) { Watcher::of(user).see(); };
  desc.parallel_for = [](void* user, uint32_t tasks, void (*task)(void*, uint32_t), void* task_user) {
    Watcher::of(user).loop(tasks, task, task_user);
  };
  return desc;
}

TEST(Modes, OfTheHostsThreadsAndInItsCallbacks) {
  const Files files;
  const char* const names[] = {"layer"};
  const auto work = [&](Host& host) {
    Watcher watcher;
    const marlin_context_desc desc = watched(watcher);
    mm::context context;
    const std::string before = std::getenv("METAL_MARLIN_ISA") != nullptr ? std::getenv("METAL_MARLIN_ISA") : "";
    setenv("METAL_MARLIN_ISA", "no-such-isa", 1);  // of which the logger hears
    host.run([&] { return marlin_context_create(&desc, context.out(), nullptr); });
    before.empty() ? unsetenv("METAL_MARLIN_ISA") : setenv("METAL_MARLIN_ISA", before.c_str(), 1);
    EXPECT_GT(watcher.calls, 0);
    pack(host, context);
    const mm::checkpoint file(files.folder());
    auto load = mm::make<marlin_load_desc>();
    load.format = MARLIN_FORMAT_NVFP4;
    load.layers = names;
    load.layer_count = 1;
    load.user = &watcher;
    load.progress = [](void* user, uint64_t, uint64_t) {
      Watcher::of(user).see();
      return 0;
    };
    mm::weights weights;
    host.run([&] { return marlin_weights_load(context.get(), file.get(), &load, weights.out(), nullptr); });
    unpack(host, weights);
    auto convert = mm::make<marlin_convert_desc>();
    convert.format = MARLIN_FORMAT_NVFP4;
    convert.layers = names;
    convert.layer_count = 1;
    convert.user = &watcher;
    convert.flags = MARLIN_CONVERT_OVERWRITE;
    convert.progress = [](void* user, uint64_t, uint64_t, const char*) {
      Watcher::of(user).see();
      return 0;
    };
    convert.layer_done = [](void* user, const marlin_convert_outcome*) { Watcher::of(user).see(); };
    convert.parallel_for = desc.parallel_for;
    const std::string out = files.folder() + "/out.safetensors";
    host.run([&] { return marlin_checkpoint_convert(file.get(), out.c_str(), &convert, nullptr); });
    EXPECT_GT(watcher.calls, 20);
    EXPECT_EQ(watcher.wrong_in_callback, 0);
    EXPECT_EQ(watcher.changed_by_task, 0);
  };
  expect_the_same(work);
}

TEST(Modes, AfterCallsThatFail) {
  const mm::context context(two_threads());
  const mm::weights weights = quantized(context, 8, 32);
  Product product(weights, 2);
  const Files files;
  const mm::checkpoint file(files.folder());
  expect_the_same([&](Host& host) {
    marlin_gemm_desc bad = product.desc;
    bad.c.cols = 3;
    auto err = mm::make<marlin_error>();
    host.run([&] { return marlin_gemm(nullptr, &bad, &err); });
    host.add(err.message, sizeof err.message);
    const std::vector<float> values(4 * 32, std::numeric_limits<float>::quiet_NaN());
    const marlin_pack_desc part = pack_desc(values, 4, 32, MARLIN_FORMAT_NVFP4);
    const marlin_pack_desc* const parts[] = {&part};
    mm::weights none;
    host.run([&] { return marlin_weights_pack(context.get(), parts, 1, 1, none.out(), &err); });
    auto load = mm::make<marlin_load_desc>();
    const char* const names[] = {"layer"};
    load.format = MARLIN_FORMAT_NVFP4;
    load.layers = names;
    load.layer_count = 1;
    load.progress = [](void*, uint64_t, uint64_t) { return 1; };
    host.run([&] { return marlin_weights_load(context.get(), file.get(), &load, none.out(), &err); });
    host.add(err.message, sizeof err.message);
  });
}

}  // namespace
}  // namespace abi_test::modes_tests
