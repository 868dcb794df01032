// One context, many threads: whatever may be used at once is used at once. Runs under ThreadSanitizer, too.
#include "campaigns.h"
#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

/// What all threads share, and the right answers.
struct Shared {
  const mm::context context{kBackend};
  const mm::weights weights = quantized(context, 96, 160, 5);
  const mm::checkpoint file{std::string(MARLIN_TEST_DATA) + "/ct-mxfp4"};
  const std::string layer = file.layers().at(0).name;
  std::vector<float> decoded = std::vector<float>(96 * 160);
  std::vector<float> product;
  std::mutex handoff;
  mm::stream wandering{context};  ///< used by one thread at a time, whoever holds the lock

  Shared() {
    mm::unpack(weights, mm::matrix_view(decoded.data(), 96, 160));
    Product p(weights, 4, 11);
    mm::gemm(p.desc);
    product = p.c;
  }
};

/// Mixed calls; false as soon as one is wrong.
bool mixed_calls(Shared& shared, uint32_t seed, int calls) {
  std::mt19937 random(seed);
  mm::stream own(shared.context);
  for (int i = 0; i < calls; ++i) {
    Product p(shared.weights, 4, 11);
    switch (random() % 8) {
      case 0:
        mm::gemm(p.desc);
        if (p.c != shared.product) return false;
        break;
      case 1:
        if (marlin_gemm(for_host_memory(own), &p.desc, nullptr) != MARLIN_OK) return false;
        own.wait();
        if (p.c != shared.product) return false;
        break;
      case 2: {
        const std::lock_guard lock(shared.handoff);
        if (marlin_gemm(for_host_memory(shared.wandering), &p.desc, nullptr) != MARLIN_OK) return false;
        if (p.c != shared.product) return false;
        break;
      }
      case 3: {
        std::vector<float> rows(5 * 160);
        mm::unpack(shared.weights, mm::matrix_view(rows.data(), 5, 160), 50);
        if (!std::equal(rows.begin(), rows.end(), shared.decoded.begin() + 50 * 160)) return false;
        break;
      }
      case 4: {
        const mm::weights mine = quantized(shared.context, 96, 160, 5);
        p.desc.weights = mine.get();
        mm::gemm(p.desc);
        if (p.c != shared.product) return false;
        break;
      }
      case 5:
        if (mm::info(mm::load(shared.context, shared.file, shared.layer)).name != shared.layer) return false;
        break;
      case 6: {
        const mm::buffer buffer(shared.context, 1 + random() % 10000);
        own = mm::stream(shared.context);
        if (marlin_gemm(own.get(), nullptr, nullptr) != MARLIN_E_ARGUMENT) return false;
        break;
      }
      default: {
        const marlin_gemm_desc* const descs[] = {&p.desc};
        if (marlin_prepare(own.get(), descs, 1, 4, nullptr, nullptr) != MARLIN_OK) return false;
        if (!contains(mm::explain(p.desc), "kernel: ")) return false;
        if (shared.file.layers().size() != 1 || shared.file.tensor(shared.layer + ".weight_scale").data == nullptr)
          return false;
      }
    }
  }
  return true;
}

TEST(ThreadsTest, AnyNumberOfThreadsShareAContext) {
  Shared shared;
  const uint32_t seed = Soak::seed(), count = whole_campaigns() ? 16 : 8;
  const Soak soak;
  std::atomic<int> right{0}, calls{0};
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (uint32_t t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      int done = 0;
      bool all_right = true;
      for (uint32_t round = 0; all_right && soak.goes_on(done, whole_campaigns() ? 100000 / count : 60); ++round, done += 60)
        all_right = mixed_calls(shared, seed + t + 1000 * round, 60);
      right += all_right;
      calls += done;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, static_cast<int>(count));
  RecordProperty("cases", calls);
}

TEST(ThreadsTest, TheLastChildMayDieOnAnyThread) {
  for (int i = 0; i < 50; ++i) {
    mm::context context(kBackend);
    mm::weights weights = quantized(context, 8, 32);
    mm::stream stream(context);
    Product p(weights, 2);
    EXPECT_OK(marlin_gemm, for_host_memory(stream), &p.desc);
    std::thread one([w = std::move(weights)]() mutable { w.reset(); });
    std::thread two([s = std::move(stream)]() mutable { s.reset(); });
    context.reset();
    one.join();
    two.join();
  }
}

}  // namespace
}  // namespace abi_test
