#include "backends/gpu/gpu_backend.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/choice.h"
#include "backends/gpu/gemm.h"
#include "backends/gpu/pack.h"
#include "backends/gpu/probe.h"
#include "backends/gpu/unpack.h"
#include "base/system.h"
#include "core/shapes.h"
#include "core/thread_pool.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "formats/widen.h"

namespace metal_marlin::gpu {
namespace {

/// The operands of a product in a list of all operands; an absent one has no number.
struct Located {
  size_t a = 0, c = 0, bias = 0, ids = 0, scales = 0;
};

class GpuBackend final : public Backend {
 public:
  GpuBackend(std::shared_ptr<device::Device> device, const BackendOptions& options,
             const GpuOptions& gpu)
      : device_(std::move(device)),
        options_(gpu),
        kernel_(options.kernel),
        logger_(options.logger),
        tracer_(options.tracer),
        runner_(make_task_runner(options)) {}

  Result<std::unique_ptr<PackedWeights>> pack(const WeightSource& source) override {
    const WeightSource* const one = &source;
    MARLIN_ASSIGN(GpuWeightStack packed, pack_sources({&one, 1}));
    return std::unique_ptr<PackedWeights>(std::move(packed[0]));
  }

  Result<ExpertStack> pack_experts(
      std::span<const std::unique_ptr<WeightSource>> experts) override {
    std::vector<const WeightSource*> sources;
    for (const auto& expert : experts) sources.push_back(expert.get());
    MARLIN_ASSIGN(GpuWeightStack packed, pack_sources(sources));
    return stack_of(std::move(packed));
  }

  PackedForm packed_form() const override { return gpu::packed_form(options_.policy->order); }
  Result<PackedMatrix> packed_matrix(const PackedWeights& weights) const override {
    const auto& own = static_cast<const GpuWeights&>(weights);
    const RowBlockLayout& layout = own.layout;
    const DevicePointer at = own.part(0);
    if (at.buffer->host() == nullptr)
      return Status::error(MARLIN_E_UNSUPPORTED, "the weights are where only the device reads");
    return PackedMatrix{own.meta(), layout.slots, layout.slot_group, layout.plan_bits(),
                        std::span(at.buffer->host() + at.offset, layout.bytes)};
  }
  Result<ExpertStack> adopt(std::span<const PackedMatrix> experts,
                            const std::shared_ptr<const void>& memory) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    MARLIN_ASSIGN(GpuWeightStack adopted,
                  adopt_on_device(experts, memory, *options_.policy, memory_, streams_));
    return stack_of(std::move(adopted));
  }

  Result<uint64_t> packed_bytes(const WeightSource& source) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    MARLIN_ASSIGN(const bool as_it_is, reads_as_it_is(source));
    const WeightMeta meta = as_it_is ? source.meta() : WidenedSource(source).meta();
    MARLIN_ASSIGN(const PackPlan plan,
                  plan_packing(meta, Exponents::bytes, options_.policy->order));
    return plan.layout.bytes + plan.slot_to_k.size() * sizeof(int32_t) + sizeof(GpuWeights);
  }

  Status unpack(BackendStream* stream, const PackedWeights& weights, const RowSelection& rows,
                const MatrixView& out) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    const auto& packed = static_cast<const GpuWeights&>(weights);
    if (stream != nullptr)
      return unpack_on(static_cast<GpuStream&>(*stream), packed, rows, out, nullptr);
    MARLIN_RETURN_IF_ERROR(check_ids(*device_, rows, out.rows, packed.layout.n));
    return at_once([&](GpuStream& own, Operands& operands) {
      return unpack_on(own, packed, rows, out, &operands);
    });
  }

  Result<std::unique_ptr<SharedMemory>> allocate(uint64_t bytes) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    MARLIN_ASSIGN(device::BufferRef buffer,
                  memory_.allocate(bytes, device::Placement::shared, "buffer"));
    std::memset(buffer->host(), 0, bytes);
    return std::unique_ptr<SharedMemory>(std::make_unique<GpuBuffer>(std::move(buffer)));
  }

  Result<NativeMemory> native_memory(void* native) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    MARLIN_ASSIGN(const device::BufferRef buffer, device_->wrap_native(native));
    return NativeMemory{buffer->address(), buffer->bytes()};
  }

  Result<std::unique_ptr<BackendStream>> create_stream(const StreamOptions& options) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    MARLIN_ASSIGN(auto queue, device_->stream({.kind = options.kind,
                                               .native = options.native,
                                               .wait_fence = options.wait_fence,
                                               .update_fence = options.update_fence,
                                               .trace = {tracer_, options.handle}}));
    DevicePointer scratch;
    uint64_t bytes = 0;
    if (options.scratch.present()) {
      if (options.scratch.memory == MARLIN_MEM_HOST)
        return Status::error(
            MARLIN_E_ARGUMENT,
            "desc->scratch.memory is 0 (host), expected a buffer or the device's own memory");
      MARLIN_ASSIGN(scratch, place_on_device(*device_, options.scratch));
      MARLIN_RETURN_IF_ERROR(check_extent(scratch, *queue, options.scratch, "desc->scratch", 1));
      const uint64_t all = static_cast<uint64_t>(options.scratch.rows * options.scratch.cols);
      const uint64_t skip = std::min(-scratch.address() % kScratchAlign, all);
      scratch.offset += skip;
      bytes = all - skip;
    }
    return std::unique_ptr<BackendStream>(std::make_unique<GpuStream>(
        std::move(queue), options.kind, device_->capabilities().submission_seconds,
        std::move(scratch), bytes));
  }

  Result<Plan> plan(const GemmProblem& problem) override {
    MARLIN_ASSIGN(const GemmPlan own, plan(problem, problem_size(problem)));
    return Plan(own);
  }

  Status gemm(BackendStream* stream, std::span<const PlannedGemm> products) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    if (stream != nullptr) return gemm_on(static_cast<GpuStream&>(*stream), products, nullptr);
    return at_once(
        [&](GpuStream& own, Operands& operands) { return gemm_on(own, products, &operands); });
  }

  Result<uint64_t> prepare(BackendStream* stream, std::span<const PlannedGemm> products,
                           int64_t max_m) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    if (max_m == 0 || products.empty()) return uint64_t{0};
    if (stream != nullptr)
      return prepare_on(static_cast<GpuStream&>(*stream), products, max_m, false);
    MARLIN_ASSIGN(auto own, streams_.take());
    auto bytes = prepare_on(*own, products, max_m, true);
    streams_.put(std::move(own));
    return bytes;
  }

  Status flush(BackendStream& stream) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    auto& own = static_cast<GpuStream&>(stream);
    MARLIN_RETURN_IF_ERROR(own.check());
    return own.commit();
  }

  Status wait(BackendStream& stream, uint64_t timeout_ns) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    auto& own = static_cast<GpuStream&>(stream);
    MARLIN_RETURN_IF_ERROR(own.check());
    return own.wait(timeout_ns);
  }

  Status notify(BackendStream& stream, void (*done)(void* user, marlin_status status),
                void* user) override {
    MARLIN_RETURN_IF_ERROR(check_process());
    auto& own = static_cast<GpuStream&>(stream);
    MARLIN_RETURN_IF_ERROR(own.check());
    return own.notify(done, user);
  }

  Result<std::string> explain(const PlannedGemm& product) override {
    const auto& plan = product.plan.as<GemmPlan>();
    std::string text = explain_gemm(plan, product.problem, rules());
    const auto kernel = GemmCall::multiply_kernel(kernels_, product.problem, plan);
    if (kernel.ok()) append_limits(text, *kernel.value());
    return text + "busy_ns: " + std::to_string(busy_ns_.load()) + '\n';
  }

 private:
  static ExpertStack stack_of(GpuWeightStack weights) {
    ExpertStack stack;
    for (auto& expert : weights) stack.push_back(std::move(expert));
    return stack;
  }

  /// Whether the kernels read these weights as they are, or widened.
  Result<bool> reads_as_it_is(const WeightSource& source) const {
    const auto reads = options_.policy->reads;
    if (reads(source.meta())) return true;
    if (is_narrow(source.meta()) && reads(WidenedSource(source).meta())) return false;
    return Status::error(MARLIN_E_UNSUPPORTED, "format: the GPU has no kernels for %s yet",
                         format_name(source.meta().format));
  }

  Result<GpuWeightStack> pack_sources(std::span<const WeightSource* const> sources) {
    MARLIN_RETURN_IF_ERROR(check_process());
    std::vector<std::unique_ptr<WidenedSource>> widened;
    std::vector<const WeightSource*> wide;
    for (const WeightSource* const source : sources) {
      MARLIN_ASSIGN(const bool as_it_is, reads_as_it_is(*source));
      if (!as_it_is) widened.push_back(std::make_unique<WidenedSource>(*source));
      wide.push_back(as_it_is ? source : widened.back().get());
    }
    return pack_on_device(wide, options_.policy->order, *device_, memory_, *runner_);
  }

  /// Neither the driver's connection nor the locks of its threads come along into the child of a
  /// fork.
  Status check_process() const {
    if (system::process_id() == process_) return {};
    return Status::error(MARLIN_E_DEVICE,
                         "%s: the context is of process %" PRIu64
                         " and does not survive a fork into %" PRIu64,
                         device_->capabilities().name.c_str(), process_, system::process_id());
  }

  PlanRules rules() const {
    return {device_->capabilities(), health_, *options_.policy, kernel_, options_.most_rows};
  }

  /// Checks a kernel and remembers what came of it.
  Result<KernelHealth::State> check(const ProductKernel& kernel, ActivationKind activation,
                                    const RowBlockLayout& layout) {
    const ProbeBench bench{*options_.policy, *device_, memory_, kernels_,
                           streams_,         *runner_, logger_};
    MARLIN_ASSIGN(const KernelHealth::State state, probe(bench, kernel, activation, layout));
    health_.set(decoder_of(kernel, activation, layout), state);
    return state;
  }

  /// A plan whose kernel is known to compute right here.
  Result<GemmPlan> plan(const GemmProblem& problem, int64_t m) {
    MARLIN_RETURN_IF_ERROR(check_process());
    for (;;) {  // each turn learns of one more kernel
      MARLIN_ASSIGN(const GemmPlan chosen, plan_gemm(problem, m, rules()));
      const RowBlockLayout& layout = weights_of(problem).layout;
      if (!options_.probe || chosen.health != KernelHealth::unknown) return chosen;
      GemmCall::expect(kernels_, problem, chosen);  // while the first of them is checked
      MARLIN_RETURN_IF_ERROR(check(*chosen.kernel, chosen.activation, layout).status());
    }
  }

  /// Records on a stream of the backend's own, and waits. A stream on which that failed is dropped.
  template <class Record>
  Status at_once(const Record& record) {
    MARLIN_ASSIGN(auto stream, streams_.take());
    Operands operands(*device_, memory_, *stream, true);
    MARLIN_RETURN_IF_ERROR(record(*stream, operands));
    MARLIN_RETURN_IF_ERROR(operands.fetch());
    MARLIN_RETURN_IF_ERROR(stream->wait(UINT64_MAX));
    busy_ns_ += static_cast<uint64_t>(stream->busy_seconds() * 1e9);
    operands.finish();
    streams_.put(std::move(stream));
    return {};
  }

  Status gemm_on(GpuStream& stream, std::span<const PlannedGemm> products, Operands* hosts) {
    MARLIN_RETURN_IF_ERROR(stream.check());
    Operands devices(*device_, memory_, stream, false);
    Operands& operands = hosts != nullptr ? *hosts : devices;
    std::vector<Located> located;
    for (const auto& [problem, plan] : products) {
      Located& at = located.emplace_back();
      if (problem.a.rows == 0) continue;
      const auto input = [&](const MatrixView& view, const char* name, size_t& index) {
        if (!view.present()) return Status();
        MARLIN_ASSIGN(index, operands.add(view, name, element_bytes(view), Access::read));
        return Status();
      };
      MARLIN_RETURN_IF_ERROR(input(problem.a, "a", at.a));
      const Access access = problem.accumulate ? Access::update : Access::write;
      MARLIN_ASSIGN(at.c, operands.add(problem.c, "c", element_bytes(problem.c), access));
      MARLIN_RETURN_IF_ERROR(input(problem.bias, "bias", at.bias));
      MARLIN_RETURN_IF_ERROR(input(problem.routing.ids, "expert_ids", at.ids));
      MARLIN_RETURN_IF_ERROR(input(problem.routing.scales, "expert_scales", at.scales));
    }
    MARLIN_RETURN_IF_ERROR(operands.stage());
    GemmCall call(kernels_);
    for (size_t i = 0; i < products.size(); ++i) {
      const auto& [problem, plan] = products[i];
      if (problem.a.rows == 0) continue;
      const auto place = [&](const MatrixView& view, size_t index) {
        return view.present() ? operands.place(index) : Matrix();
      };
      const Located& at = located[i];
      MARLIN_RETURN_IF_ERROR(
          call.add(problem, plan.as<GemmPlan>(),
                   {operands.place(at.a), operands.place(at.c), place(problem.bias, at.bias),
                    place(problem.routing.ids, at.ids), place(problem.routing.scales, at.scales)}));
    }
    return call.record(stream, memory_);
  }

  Status unpack_on(GpuStream& stream, const GpuWeights& weights, const RowSelection& rows,
                   const MatrixView& out, Operands* hosts) {
    MARLIN_RETURN_IF_ERROR(stream.check());
    Operands devices(*device_, memory_, stream, false);
    Operands& operands = hosts != nullptr ? *hosts : devices;
    MARLIN_ASSIGN(const size_t to, operands.add(out, "out", element_bytes(out), Access::write));
    size_t ids = 0;
    if (rows.ids.present()) {
      MARLIN_ASSIGN(ids, operands.add(rows.ids, "row_ids", sizeof(int32_t), Access::read));
    }
    MARLIN_RETURN_IF_ERROR(operands.stage());
    const Matrix list = rows.ids.present() ? operands.place(ids) : Matrix();
    return record_unpack(kernels_, stream, weights, rows, list, out, operands.place(to));
  }

  Result<uint64_t> prepare_on(GpuStream& stream, std::span<const PlannedGemm> products,
                              int64_t max_m, bool stages) {
    MARLIN_RETURN_IF_ERROR(stream.check());
    uint64_t bytes = 0, staged = 0;
    for (const auto& [problem, own] : products) {
      MARLIN_ASSIGN(const std::vector<int64_t> told, plan_breakpoints(problem, max_m, rules()));
      for (const int64_t m : told) {
        const auto likely = plan_gemm(problem, m, rules());
        if (likely.ok()) GemmCall::expect(kernels_, problem, likely.value());
      }
      uint64_t most = 0;
      for (const int64_t m : told) {
        MARLIN_ASSIGN(const GemmPlan chosen, plan(problem, m));
        MARLIN_RETURN_IF_ERROR(GemmCall::compile(kernels_, problem, chosen));
        most = std::max(most, chosen.scratch_bytes());
        if (chosen.kernel->shares_tiles()) MARLIN_RETURN_IF_ERROR(stream.flags(memory_).status());
      }
      bytes += most;
      const bool routed = problem.routing.present();
      for (MatrixView view : {problem.a, problem.c, problem.routing.ids, problem.routing.scales}) {
        if (view.cols == 0) continue;  // there is none
        view.rows = routed ? product_rows(problem, max_m) : max_m;
        staged += Operands::staging_bytes(view, element_bytes(view));
      }
      if (problem.bias.present())
        staged += Operands::staging_bytes(problem.bias, element_bytes(problem.bias));
    }
    if (bytes != 0 && !stream.has_host_scratch())
      MARLIN_RETURN_IF_ERROR(stream.scratch(memory_, bytes).status());
    if (stages && staged != 0) MARLIN_RETURN_IF_ERROR(stream.staging(memory_, staged).status());
    return bytes == 0 ? 0 : bytes + kScratchAlign - 1;  // the host's memory may start anywhere
  }

  const uint64_t process_ = system::process_id();
  const std::shared_ptr<device::Device> device_;
  const GpuOptions options_;
  const std::string kernel_;
  const Logger logger_;
  const std::shared_ptr<Tracer> tracer_;
  const std::unique_ptr<TaskRunner> runner_;  // the CPU's: it packs weights
  Memory memory_{*device_, [this] { return streams_.clear(); }, logger_};
  KernelCache kernels_{*device_};
  KernelHealth health_;
  StreamCache streams_{*device_, tracer_};
  std::atomic<uint64_t> busy_ns_ = 0;  // of the device, for calls without a stream
};

}  // namespace

Result<std::unique_ptr<Backend>> make_gpu_backend(std::shared_ptr<device::Device> device,
                                                  const BackendOptions& options,
                                                  const GpuOptions& gpu) {
  return std::unique_ptr<Backend>(std::make_unique<GpuBackend>(std::move(device), options, gpu));
}

}  // namespace metal_marlin::gpu
