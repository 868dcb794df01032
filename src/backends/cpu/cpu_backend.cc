#include "backends/cpu/cpu_backend.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_features.h"
#include "backends/cpu/experts.h"
#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/pack.h"
#include "backends/cpu/packed_memory.h"
#include "backends/cpu/workspace.h"
#include "base/system.h"
#include "core/packed_reader.h"
#include "core/thread_pool.h"

namespace metal_marlin::cpu {
namespace {

class HostMemory final : public SharedMemory {
 public:
  explicit HostMemory(Block block) : block_(std::move(block)) {}
  std::byte* host() const override { return block_.data(); }

 private:
  const Block block_;
};

struct CpuStream final : BackendStream {
  std::optional<std::span<std::byte>> host_scratch;  // aligned; none: the workspace has its own
  Workspace workspace;
  const marlin_stream* handle = nullptr;
};

const CpuWeights& cpu_weights(const PackedWeights& weights) {
  return static_cast<const CpuWeights&>(weights);
}

/// The part of the host's memory that starts on a cache line.
std::span<std::byte> align(std::span<std::byte> memory) {
  const size_t skip = -reinterpret_cast<uintptr_t>(memory.data()) % Block::kAlign;
  return memory.subspan(std::min(skip, memory.size()));
}

PackedForm packed_form() { return {"cpu", kPackedVersion}; }

class CpuBackend final : public Backend, public PackedReader {
 public:
  CpuBackend(const BackendOptions& options, CpuFeatures features)
      : features_(std::move(features)),
        kernel_(options.kernel),
        allocator_(options.allocator),
        tracer_(options.tracer),
        runner_(make_task_runner(options)) {}

  Result<std::unique_ptr<PackedWeights>> pack(const WeightSource& source) override {
    MARLIN_ASSIGN(std::unique_ptr<PackedWeights> packed,
                  pack_weights(source, packed_allocator(), *runner_));
    return packed;
  }

  Result<uint64_t> packed_bytes(const WeightSource& source) override {
    return cpu::packed_bytes(source.meta());
  }

  PackedForm packed_form() const override { return cpu::packed_form(); }
  Result<PackedMatrix> packed_matrix(const PackedWeights& weights) const override {
    return cpu::packed_matrix(cpu_weights(weights));
  }
  Result<ExpertStack> adopt(std::span<const PackedMatrix> experts,
                            const std::shared_ptr<const void>& memory) override {
    ExpertStack stack;
    for (const PackedMatrix& matrix : experts) {
      MARLIN_ASSIGN(std::unique_ptr<PackedWeights> adopted, adopt_weights(matrix, memory));
      stack.push_back(std::move(adopted));
    }
    return stack;
  }

  Status unpack(BackendStream* stream, const PackedWeights& weights, const RowSelection& rows,
                const MatrixView& out) override {
    const StreamTrace trace = trace_of(stream);
    const uint64_t begin_ns = trace ? monotonic_ns() : 0;
    MARLIN_RETURN_IF_ERROR(unpack_rows(cpu_weights(weights), rows, out, *runner_));
    const PanelLayout& layout = cpu_weights(weights).layout;
    if (trace)
      trace.tell({"unpack", "unpack", out.rows, layout.n, layout.k}, {begin_ns, monotonic_ns()});
    return {};
  }

  Result<std::unique_ptr<WeightSource>> source_of(const PackedWeights& weights) const override {
    return packed_source(cpu_weights(weights));
  }

  Result<std::unique_ptr<SharedMemory>> allocate(uint64_t bytes) override {
    MARLIN_ASSIGN(Block memory, Block::allocate(allocator_, bytes));
    std::memset(memory.data(), 0, memory.size());
    return std::unique_ptr<SharedMemory>(std::make_unique<HostMemory>(std::move(memory)));
  }

  Result<NativeMemory> native_memory(void*) override {
    return Status::error(MARLIN_E_ARGUMENT,
                         "the CPU has no native memory, expected 0 (host) or 3 (buffer)");
  }

  Result<std::unique_ptr<BackendStream>> create_stream(const StreamOptions& options) override {
    if (options.kind != MARLIN_NATIVE_NONE)
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "stream kind is %d, expected 0: the CPU has no native streams",
                           options.kind);
    auto stream = std::make_unique<CpuStream>();
    stream->handle = options.handle;
    const MatrixView& scratch = options.scratch;
    if (scratch.present())
      stream->host_scratch = align({static_cast<std::byte*>(scratch.data),
                                    static_cast<size_t>(scratch.rows * scratch.cols)});
    return std::unique_ptr<BackendStream>(std::move(stream));
  }

  Result<Plan> plan(const GemmProblem& problem) override {
    if (problem.routing.present()) {
      MARLIN_ASSIGN(const ExpertPlan own, plan_experts(problem, problem.routing.ids.rows, rules()));
      return Plan(own);
    }
    MARLIN_ASSIGN(const GemmPlan own, plan_gemm(problem, problem.a.rows, rules()));
    return Plan(own);
  }

  Status gemm(BackendStream* stream, std::span<const PlannedGemm> products) override {
    if (stream != nullptr) {
      auto& own = static_cast<CpuStream&>(*stream);
      return gemm(own.workspace, own.host_scratch, products, trace_of(stream));
    }
    const WorkspaceCache::Lease lease(cache_);
    return gemm(*lease, std::nullopt, products, trace_of(stream));
  }

  Result<uint64_t> prepare(BackendStream* stream, std::span<const PlannedGemm> products,
                           int64_t max_m) override {
    if (stream != nullptr) {
      auto& own = static_cast<CpuStream&>(*stream);
      return prepare(own.workspace, own.host_scratch.has_value(), products, max_m);
    }
    const WorkspaceCache::Lease lease(cache_);
    return prepare(*lease, false, products, max_m);
  }

  Status flush(BackendStream&) override { return {}; }
  Status wait(BackendStream&, uint64_t) override { return {}; }
  Status notify(BackendStream&, void (*done)(void*, marlin_status), void* user) override {
    done(user, MARLIN_OK);
    return {};
  }

  Result<std::string> explain(const PlannedGemm& product) override {
    const std::string threads = "threads: " + std::to_string(runner_->width()) + "\n";
    if (product.problem.routing.present()) {
      MARLIN_ASSIGN(const std::string text,
                    explain_experts(product.problem, product.plan.as<ExpertPlan>(), rules()));
      return text + threads;
    }
    return explain_gemm(product.plan.as<GemmPlan>(), product.problem, rules()) + threads;
  }

 private:
  StreamTrace trace_of(const BackendStream* stream) const {
    return {tracer_, stream != nullptr ? static_cast<const CpuStream&>(*stream).handle : nullptr};
  }

  Status gemm(Workspace& workspace, std::optional<std::span<std::byte>> scratch,
              std::span<const PlannedGemm> products, StreamTrace trace) {
    const auto routes = [](const PlannedGemm& product) {
      return product.problem.routing.present() && product.problem.a.rows != 0;
    };
    uint64_t bytes = scratch_bytes(products);
    for (const PlannedGemm& product : products)
      if (routes(product)) bytes = std::max(bytes, product.plan.as<ExpertPlan>().bytes());
    if (bytes == 0) return {};

    if (!scratch) {
      MARLIN_ASSIGN(scratch, workspace.scratch(bytes, scratch_allocator()));
    } else if (scratch->size() < bytes) {
      return Status::error(MARLIN_E_NOT_PREPARED,
                           "the stream's scratch holds %zu bytes from its first multiple of 64 on, "
                           "these products need %" PRIu64,
                           scratch->size(), bytes);
    }
    const Executor on(*runner_, std::move(trace));
    run_gemm(products, *scratch, on);
    for (const PlannedGemm& product : products) {
      if (!routes(product)) continue;
      MARLIN_RETURN_IF_ERROR(
          run_experts(product.problem, product.plan.as<ExpertPlan>(), rules(), *scratch, on));
    }
    return {};
  }

  Result<uint64_t> prepare(Workspace& workspace, bool has_host_scratch,
                           std::span<const PlannedGemm> products, int64_t max_m) {
    if (max_m == 0 || products.empty()) return uint64_t{0};
    // Rows are multiplied a block at a time, so scratch stops growing long before this; and
    // INT64_MAX would overflow in sums.
    max_m = std::min(max_m, int64_t{1} << 40);
    size_t plain = 0;
    uint64_t plain_bytes = 0, bytes = 0;
    for (const auto& [problem, own] : products) {
      if (problem.routing.present()) {
        MARLIN_ASSIGN(const ExpertPlan plan, plan_experts(problem, max_m, rules()));
        bytes = std::max(bytes, plan.bytes());
        continue;
      }
      MARLIN_ASSIGN(const GemmPlan plan, largest_plan(problem, max_m, rules()));
      ++plain;
      plain_bytes += plan.bytes();
    }
    bytes = std::max(bytes, scratch_bytes(plain, plain_bytes));
    if (!has_host_scratch)
      MARLIN_RETURN_IF_ERROR(workspace.scratch(bytes, scratch_allocator()).status());
    runner_->run(runner_->width(), [](uint32_t) {});  // starts the threads
    return bytes + Block::kAlign - 1;                 // the host's memory may start anywhere
  }

  PlanRules rules() const { return {features_, kernel_}; }

  // What a host's allocator does is the host's business.
  bool has_host_allocator() const { return allocator_.alloc != Allocator::system().alloc; }
  Allocator packed_allocator() {
    return has_host_allocator() ? allocator_ : packed_memory_.allocator();
  }
  Allocator scratch_allocator() const {
    return has_host_allocator() ? allocator_ : scratch_memory();
  }

  const CpuFeatures features_;
  const std::string kernel_;
  const Allocator allocator_;
  const std::shared_ptr<Tracer> tracer_;
  PackedMemory packed_memory_;
  const std::unique_ptr<TaskRunner> runner_;
  WorkspaceCache cache_;
};

}  // namespace

uint32_t device_count() { return 1; }

void describe_device(uint32_t, marlin_device_info& out) {
  std::string warning;
  const CpuFeatures features = detect_cpu_features(&warning);
  std::snprintf(out.name, sizeof out.name, "%s", features.model.c_str());
  std::snprintf(out.isa_or_arch, sizeof out.isa_or_arch, "%s", features.name.c_str());
  out.memory_bytes = system::memory_bytes();
  out.why_not[0] = '\0';
}

bool has_kernel(std::string_view name) {
  return std::any_of(kernel_rows().begin(), kernel_rows().end(),
                     [&](const KernelRow& row) { return row.name == name; });
}

Status check_packed(const PackedForm& form, const PackedMatrix& matrix, uint64_t bytes,
                    bool has_index) {
  return form == packed_form() ? check_packed(matrix, bytes, has_index) : Status();
}

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  if (options.device_index != 0)
    return Status::error(MARLIN_E_NO_DEVICE,
                         "device_index is %d, expected 0: the CPU is one device",
                         options.device_index);
  if (options.native_device != nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "native_device is %p, expected NULL: the CPU has none",
                         options.native_device);
  std::string warning;
  CpuFeatures features = detect_cpu_features(&warning);
  if (!warning.empty()) options.logger(LogLevel::warning, warning.c_str());
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(options, std::move(features)));
}

}  // namespace metal_marlin::cpu
