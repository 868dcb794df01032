// The host's allocator, logger and thread pool, as closures made by libffi: what a binding of another language hands over.
#include "abi_table.h"
#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

/// The signature of a callback, by the struct and field that it goes into.
const Signature& callback(const std::string& name) {
  const auto found =
      std::find_if(kCallbacks.begin(), kCallbacks.end(), [&](const Signature& signature) { return signature.name == name; });
  if (found == kCallbacks.end()) throw std::invalid_argument("the header has no callback " + name);
  return *found;
}

/// A C function made at run time that calls a std::function with its raw arguments.
class Closure {
 public:
  using Body = std::function<void(void* result, void** arguments)>;

  Closure(const std::string& name, Body body) : types_(ffi_types_of(callback(name))), body_(std::move(body)) {
    closure_ = static_cast<ffi_closure*>(ffi_closure_alloc(sizeof(ffi_closure), &code_));
    const auto run = [](ffi_cif*, void* out, void** arguments, void* self) {
      static_cast<Closure*>(self)->body_(out, arguments);
    };
    if (closure_ == nullptr ||
        ffi_prep_cif(&cif_, FFI_DEFAULT_ABI, static_cast<unsigned>(types_.size()), ffi_type_of(callback(name).returns),
                     types_.data()) != FFI_OK ||
        ffi_prep_closure_loc(closure_, &cif_, run, this, code_) != FFI_OK)
      throw std::bad_alloc();
  }
  ~Closure() { ffi_closure_free(closure_); }
  Closure(const Closure&) = delete;
  template <class Function>
  Function as() const {
    return reinterpret_cast<Function>(code_);
  }

 private:
  std::vector<ffi_type*> types_;
  Body body_;
  ffi_cif cif_;
  ffi_closure* closure_;
  void* code_ = nullptr;
};

template <class T>
T argument(void** arguments, int i) {
  return *static_cast<T*>(arguments[i]);
}

class Callbacks : public testing::Test {
 protected:
  Callbacks() {
    desc.alloc = alloc.as<decltype(desc.alloc)>();
    desc.release = release.as<decltype(desc.release)>();
    desc.log = log.as<decltype(desc.log)>();
    desc.parallel_for = parallel_for.as<decltype(desc.parallel_for)>();
    desc.user = this;
  }
  ~Callbacks() override {
    EXPECT_TRUE(blocks.empty()) << blocks.size() << " blocks were not released";
    EXPECT_EQ(mistakes, 0);
  }

  void* on_alloc(size_t size, size_t align) {
    const std::lock_guard lock(mutex);
    ++allocations;
    if (size == 0 || align == 0 || (align & (align - 1)) != 0 || size % align != 0) ++mistakes;
    if (allocations == fail_at) return nullptr;
    char* const p = static_cast<char*>(std::aligned_alloc(align, size + align)) + (misalign ? align / 2 : 0);
    blocks[p] = size;
    return p;
  }
  void on_release(void* p, size_t size) {
    const std::lock_guard lock(mutex);
    const auto found = blocks.find(p);
    if (found == blocks.end() || found->second != size) {
      ++mistakes;
      return;
    }
    blocks.erase(found);
    const uintptr_t half = misalign ? 32 : 0;
    std::free(static_cast<char*>(p) - half);
  }
  void on_parallel_for(uint32_t tasks, void (*task)(void*, uint32_t), void* task_user) {
    ++loops;
    if (serial) {
      for (uint32_t i = tasks; i-- > 0;) task(task_user, i);  // any order is legal
      return;
    }
    std::vector<std::thread> threads;
    threads.reserve(2);
    for (uint32_t t = 0; t < 2; ++t)
      threads.emplace_back([=] {
        for (uint32_t i = t; i < tasks; i += 2) task(task_user, i);
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::mutex mutex;
  std::map<void*, size_t> blocks;
  int allocations = 0, mistakes = 0, fail_at = 0;
  bool misalign = false, serial = false;
  std::atomic<int> loops{0};
  std::vector<std::pair<int32_t, std::string>> lines;

  Closure alloc{"marlin_context_desc.alloc", [this](void* out, void** a) {
                  if (argument<void*>(a, 0) != this) ++mistakes;
                  *static_cast<void**>(out) = on_alloc(argument<size_t>(a, 1), argument<size_t>(a, 2));
                }};
  Closure release{"marlin_context_desc.release", [this](void*, void** a) {
                    if (argument<void*>(a, 0) != this) ++mistakes;
                    on_release(argument<void*>(a, 1), argument<size_t>(a, 2));
                  }};
  Closure log{"marlin_context_desc.log", [this](void*, void** a) {
                const std::lock_guard lock(mutex);
                lines.emplace_back(argument<int32_t>(a, 1), argument<const char*>(a, 2));
              }};
  Closure parallel_for{"marlin_context_desc.parallel_for", [this](void*, void** a) {
                         on_parallel_for(argument<uint32_t>(a, 1), argument<void (*)(void*, uint32_t)>(a, 2),
                                         argument<void*>(a, 3));
                       }};
  marlin_context_desc desc = mm::make<marlin_context_desc>();
};

TEST_F(Callbacks, TheHostsMemoryHoldsWeightsBuffersAndScratch) {
  mm::context context(desc);
  const auto allocates = [&](const char* what, auto make) {
    const int before = allocations;
    make();
    EXPECT_GT(allocations, before) << what;
  };
  mm::weights weights;
  mm::buffer buffer;
  mm::stream stream(context);
  allocates("weights", [&] { weights = quantized(context, 100, 256); });
  allocates("a buffer", [&] { buffer = mm::buffer(context, 1000); });
  Product product(weights, 40);
  product.desc.compute = MARLIN_COMPUTE_INT8;
  const marlin_gemm_desc* const descs[] = {&product.desc};
  allocates("scratch", [&] { EXPECT_OK(marlin_prepare, stream.get(), descs, 1u, int64_t{40}, nullptr); });
  const int prepared = allocations;
  EXPECT_OK(marlin_gemm, stream.get(), &product.desc);
  EXPECT_EQ(allocations, prepared) << "a prepared call allocated";
  context.reset();
  EXPECT_FALSE(blocks.empty());
}

TEST_F(Callbacks, WhenTheHostHasNoMemoryThatIsTheStatusAndTheContextStaysUsable) {
  const mm::context context(desc);
  const auto values = numbers(100 * 256, 1);
  const marlin_pack_desc part = pack_desc(values, 100, 256);
  const marlin_pack_desc* const parts[] = {&part};
  const auto until_it_works = [&](const char* what, auto attempt) {
    marlin_status status = MARLIN_E_MEMORY;
    for (int n = 1; status != MARLIN_OK; ++n) {
      ASSERT_LT(n, 100) << what;
      const size_t held = blocks.size();
      fail_at = allocations + n;
      status = attempt();
      if (status == MARLIN_OK) continue;
      EXPECT_EQ(status, MARLIN_E_MEMORY) << what;
      EXPECT_EQ(blocks.size(), held) << what << " keeps what it could not finish";
    }
    fail_at = 0;
  };
  mm::weights weights;
  mm::buffer buffer;
  until_it_works("pack", [&] { return marlin_weights_pack(context.get(), parts, 1, 1, weights.out(), nullptr); });
  until_it_works("buffer", [&] { return marlin_buffer_create(context.get(), 100, buffer.out(), nullptr); });
  Product product(weights, 40);
  const marlin_gemm_desc* const descs[] = {&product.desc};
  until_it_works("gemm", [&] { return marlin_gemm(nullptr, &product.desc, nullptr); });
  EXPECT_TRUE(product.right());
  mm::stream stream(context);
  until_it_works("prepare", [&] { return marlin_prepare(stream.get(), descs, 1, 40, nullptr, nullptr); });
  EXPECT_OK(marlin_gemm, stream.get(), &product.desc);
}

TEST_F(Callbacks, MemoryOfTheWrongAlignmentIsGivenBackAndReported) {
  const mm::context context(desc);
  misalign = true;
  mm::buffer buffer;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "expected a multiple of 64", marlin_buffer_create, context.get(), uint64_t{100},
               buffer.out());
  EXPECT_TRUE(blocks.empty());
}

TEST_F(Callbacks, TheHostsThreadsDoTheWorkInAnyOrder) {
  desc.threads = 4;
  const mm::context context(desc);
  const mm::weights weights = quantized(context, 300, 512);
  for (const bool one_thread : {true, false}) {
    serial = one_thread;
    for (const int64_t m : {1, 3, 70}) {
      const int before = loops;
      Product product(weights, m);
      EXPECT_OK(marlin_gemm, nullptr, &product.desc);
      EXPECT_TRUE(product.right());
      EXPECT_GT(loops, before);
    }
  }
}

TEST_F(Callbacks, TheLoggerHearsOfAnUnknownIsa) {
  const char* const set = std::getenv("METAL_MARLIN_ISA");
  const std::string before = set ? set : "";
  setenv("METAL_MARLIN_ISA", "no-such-isa", 1);
  mm::context context(desc);
  set ? setenv("METAL_MARLIN_ISA", before.c_str(), 1) : unsetenv("METAL_MARLIN_ISA");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].first, 2);
  EXPECT_TRUE(contains(lines[0].second, "no-such-isa")) << lines[0].second;
}

}  // namespace
}  // namespace abi_test
