// A Backend that multiplies nothing and does what a test tells it to, to see what the boundary makes of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/context.h"
#include "core/backend.h"

namespace abi_test {

class FakeWeights final : public metal_marlin::PackedWeights {
 public:
  explicit FakeWeights(const metal_marlin::WeightMeta& meta, int* alive) : alive_(alive) {
    meta_ = meta;
    ++*alive_;
  }
  ~FakeWeights() override { --*alive_; }
  uint64_t bytes() const override { return 4711; }
  metal_marlin::PlanKey plan_key() const override { return {}; }

 private:
  int* alive_;
};

class FakeStream final : public metal_marlin::BackendStream {
 public:
  FakeStream(const metal_marlin::StreamOptions& options, int* alive) : scratch(options.scratch), alive_(alive) { ++*alive_; }
  ~FakeStream() override { --*alive_; }
  const metal_marlin::MatrixView scratch;

 private:
  int* alive_;
};

class FakeMemory final : public metal_marlin::SharedMemory {
 public:
  explicit FakeMemory(uint64_t bytes) : bytes_(bytes) {}
  std::byte* host() const override { return bytes_.data(); }

 private:
  mutable std::vector<std::byte> bytes_;
};

/// What the fake was asked, and what it shall answer. Outlives the context.
struct FakeRecord {
  std::function<metal_marlin::Status(const char* call)> answer = [](const char*) { return metal_marlin::Status(); };
  int backends = 0, streams = 0, weights = 0;  ///< alive
  std::vector<std::string> calls;
  std::vector<size_t> products;  ///< of each gemm()
  int plans = 0;                 ///< made
  std::vector<int> consumed;     ///< the numbers of the plans that the last gemm() or explain() was given
  uint64_t timeout_ns = 0;
  uint64_t native_bytes = 0;                      ///< of every native object
  metal_marlin::BackendStream* stream = nullptr;  ///< of the last gemm()
  metal_marlin::MatrixView c;                     ///< of its first product
  metal_marlin::StreamOptions stream_options;     ///< of the last stream
};

class FakeBackend final : public metal_marlin::Backend {
 public:
  explicit FakeBackend(FakeRecord& record) : record_(record) { ++record_.backends; }
  ~FakeBackend() override { --record_.backends; }

  metal_marlin::Result<std::unique_ptr<metal_marlin::PackedWeights>> pack(const metal_marlin::WeightSource& source) override {
    MARLIN_RETURN_IF_ERROR(ask("pack"));
    return std::unique_ptr<metal_marlin::PackedWeights>(std::make_unique<FakeWeights>(source.meta(), &record_.weights));
  }
  metal_marlin::Result<uint64_t> packed_bytes(const metal_marlin::WeightSource&) override { return uint64_t{4711}; }
  metal_marlin::Status unpack(metal_marlin::BackendStream*, const metal_marlin::PackedWeights&,
                              const metal_marlin::RowSelection&, const metal_marlin::MatrixView&) override {
    return ask("unpack");
  }
  metal_marlin::Result<std::unique_ptr<metal_marlin::SharedMemory>> allocate(uint64_t bytes) override {
    MARLIN_RETURN_IF_ERROR(ask("allocate"));
    return std::unique_ptr<metal_marlin::SharedMemory>(std::make_unique<FakeMemory>(bytes));
  }
  metal_marlin::Result<metal_marlin::NativeMemory> native_memory(void* native) override {
    MARLIN_RETURN_IF_ERROR(ask("native_memory"));
    return metal_marlin::NativeMemory{reinterpret_cast<uintptr_t>(native), record_.native_bytes};
  }
  metal_marlin::Result<std::unique_ptr<metal_marlin::BackendStream>> create_stream(
      const metal_marlin::StreamOptions& options) override {
    MARLIN_RETURN_IF_ERROR(ask("create_stream"));
    record_.stream_options = options;
    return std::unique_ptr<metal_marlin::BackendStream>(std::make_unique<FakeStream>(options, &record_.streams));
  }
  /// Plans are numbered, so that gemm() and explain() can say which ones they were given.
  metal_marlin::PackedForm packed_form() const override { return {"fake", 1}; }
  metal_marlin::Result<metal_marlin::PackedMatrix> packed_matrix(const metal_marlin::PackedWeights&) const override {
    return metal_marlin::Status::error(MARLIN_E_UNSUPPORTED, "not asked for");
  }
  metal_marlin::Result<metal_marlin::ExpertStack> adopt(std::span<const metal_marlin::PackedMatrix>,
                                                        const std::shared_ptr<const void>&) override {
    return metal_marlin::Status::error(MARLIN_E_UNSUPPORTED, "not asked for");
  }
  metal_marlin::Result<metal_marlin::Plan> plan(const metal_marlin::GemmProblem&) override {
    MARLIN_RETURN_IF_ERROR(ask("plan"));
    return metal_marlin::Plan(++record_.plans);
  }
  metal_marlin::Status gemm(metal_marlin::BackendStream* stream, std::span<const metal_marlin::PlannedGemm> products) override {
    record_.stream = stream;
    record_.products.push_back(products.size());
    record_.consumed.clear();
    for (const metal_marlin::PlannedGemm& product : products) record_.consumed.push_back(product.plan.as<int>());
    record_.c = products.front().problem.c;
    return ask("gemm");
  }
  metal_marlin::Result<uint64_t> prepare(metal_marlin::BackendStream*, std::span<const metal_marlin::PlannedGemm>,
                                         int64_t) override {
    MARLIN_RETURN_IF_ERROR(ask("prepare"));
    return uint64_t{12345};
  }
  metal_marlin::Status flush(metal_marlin::BackendStream&) override { return ask("flush"); }
  metal_marlin::Status wait(metal_marlin::BackendStream&, uint64_t timeout_ns) override {
    record_.timeout_ns = timeout_ns;
    return ask("wait");
  }
  metal_marlin::Status notify(metal_marlin::BackendStream&, void (*done)(void*, marlin_status), void* user) override {
    MARLIN_RETURN_IF_ERROR(ask("notify"));
    done(user, MARLIN_OK);
    return {};
  }
  metal_marlin::Result<std::string> explain(const metal_marlin::PlannedGemm& product) override {
    record_.consumed = {product.plan.as<int>()};
    MARLIN_RETURN_IF_ERROR(ask("explain"));
    return std::string("kernel: fake\nwhy: a test\n");
  }

 private:
  metal_marlin::Status ask(const char* call) {
    record_.calls.emplace_back(call);
    return record_.answer(call);
  }
  FakeRecord& record_;
};

/// A context over a FakeBackend that passes for `kind`. The caller destroys it.
inline marlin_context* fake_context(FakeRecord& record, marlin_backend kind = MARLIN_BACKEND_CPU) {
  return new marlin_context(kind, std::make_unique<FakeBackend>(record), {});
}

}  // namespace abi_test
