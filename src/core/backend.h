// What every backend does. The boundary (src/api) validates descriptors and turns them into these
// types; a backend never sees a descriptor, an unchecked pointer or a matrix whose shape does not
// fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/trace.h"
#include "core/packed_form.h"
#include "core/plan_key.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Memory that the host and the backend's device both reach: what a marlin_buffer holds.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual std::byte* host() const = 0;
};

/// A checked matrix: data includes the offset, stride is resolved, elements are naturally aligned.
struct MatrixView {
  void* data = nullptr;  ///< the host's address; of native memory (CUDA, METAL) the device's
  int64_t rows = 0, cols = 0, stride = 0;  ///< in elements
  marlin_dtype dtype = 0;
  marlin_memory memory = MARLIN_MEM_HOST;
  const SharedMemory* buffer = nullptr;  ///< of MARLIN_MEM_BUFFER
  void* native = nullptr;                ///< of MARLIN_MEM_METAL: the id<MTLBuffer>
  uint64_t offset = 0;  ///< of data, in bytes from the start of `buffer` or `native`
  bool present() const { return data != nullptr; }
};

/// Packed weights on a device: immutable, shareable between threads.
class PackedWeights {
 public:
  virtual ~PackedWeights() = default;
  const WeightMeta& meta() const { return meta_; }
  virtual uint64_t bytes() const = 0;
  /// Everything of these weights that the plans of their backend depend on.
  virtual PlanKey plan_key() const = 0;

 protected:
  WeightMeta meta_;
};

/// The experts of one handle, all of one shape and format; a plain matrix is one expert.
class ExpertStack {
 public:
  void push_back(std::unique_ptr<const PackedWeights> expert) {
    one_plan_ = experts_.empty() || (one_plan_ && expert->plan_key() == front()->plan_key());
    experts_.push_back(std::move(expert));
  }
  /// Whether the plan for some rows of one expert serves as many rows of any. Each expert has plans
  /// of its own if not.
  bool has_one_plan() const { return one_plan_; }

  size_t size() const { return experts_.size(); }
  const std::unique_ptr<const PackedWeights>& front() const { return experts_.front(); }
  const std::unique_ptr<const PackedWeights>& operator[](size_t i) const { return experts_[i]; }
  auto begin() const { return experts_.begin(); }
  auto end() const { return experts_.end(); }

 private:
  std::vector<std::unique_ptr<const PackedWeights>> experts_;
  bool one_plan_ = true;
};

/// Who multiplies what in a mixture of experts, checked: slot s of token t is row t top_k + s of
/// the products.
struct Routing {
  const ExpertStack* stack = nullptr;  ///< null: a plain product
  MatrixView ids;     ///< [T, top_k] I32; read once; outside of the stack: the slot's result is 0
  MatrixView scales;  ///< [T, top_k] floats or absent: no sum
  bool present() const { return stack != nullptr; }
  int64_t slots() const { return ids.rows * ids.cols; }
};

/// C[M, N] = f(A W^T + bias) (+ C), checked: a is [M, k], c is [M, n] (n / 2 for two-input
/// epilogues), bias [1, n] or absent. With routing: a is [T, k] or [slots, k]; c [slots, n], or [T,
/// n] when scales say how to sum a token's; bias [1 or E, n].
/// GemmProblem::activation_group: the shortest, and that of scales of whole rows.
inline constexpr int64_t kLeastActivationGroup = 32, kWholeRow = INT64_MAX;
/// "int8 in groups of 32", ...
const char* activation_group_text(int64_t group);

/// The numbers of epilogues that take gate and up rows. SWIGLU is g sigmoid(alpha g) (u +
/// up_offset), where g = min(gate, gate_limit) and u is up within +-up_limit; these here change no
/// bit of silu(gate) up. SITU, which has limits alone, is gate_limit tanh(gate / gate_limit)
/// sigmoid(gate) up_limit tanh(up / up_limit).
struct GateNumbers {
  float gate_limit = std::numeric_limits<float>::infinity();
  float up_limit = std::numeric_limits<float>::infinity();
  float alpha = 1, up_offset = -0.0f;
};

struct GemmProblem {
  const PackedWeights* weights = nullptr;  ///< with routing: the first expert
  MatrixView a, c, bias;
  Routing routing;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  marlin_epilogue epilogue = MARLIN_EPILOGUE_NONE;  ///< SWIGLU_OAI is SWIGLU with `gate`
  GateNumbers gate;
  /// INT8: slots of a row of A that share a scale: 32, 64, 128 or kWholeRow.
  int64_t activation_group = kLeastActivationGroup;
  bool accumulate = false;
  /// The bits of a row depend neither on M nor on its place nor on the rows beside it: kernels of
  /// one order of additions serve every M.
  bool row_invariant = false;
};
/// True for epilogues that take gate and up rows and give n / 2 columns.
constexpr bool is_two_input(marlin_epilogue e) {
  return e >= MARLIN_EPILOGUE_SWIGLU && e <= MARLIN_EPILOGUE_SITU;
}

/// How a backend runs one product: a value of a type of its own, kept without an allocation.
class Plan {
 public:
  Plan() = default;
  template <class T>
    requires(!std::is_same_v<T, Plan>)
  explicit Plan(const T& own) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof bytes_ && alignof(T) <= 8);
    ::new (static_cast<void*>(bytes_)) T(own);
  }
  /// The value that the plan was made of. Only the backend that made the plan knows its type.
  template <class T>
  const T& as() const {
    return *std::launder(reinterpret_cast<const T*>(bytes_));
  }

 private:
  alignas(8) std::byte bytes_[128] = {};
};

/// A product and the plan that its backend made for it.
struct PlannedGemm {
  GemmProblem problem;
  Plan plan;
};

/// An in-order queue of one backend, with its scratch memory. One thread at a time.
class BackendStream {
 public:
  virtual ~BackendStream() = default;
};

struct StreamOptions {
  marlin_native kind = MARLIN_NATIVE_NONE;
  void* native = nullptr;
  MatrixView scratch{};  ///< the host's: U8 without gaps, of any alignment; absent: the stream
                         ///< allocates, growing as needed
  void* wait_fence = nullptr;  ///< of Metal, as marlin_stream_desc has them
  void* update_fence = nullptr;
  const marlin_stream* handle = nullptr;  ///< for trace events
};

/// Which rows of W to decode: those that `ids` lists ([T, 1] I32), or, where it is absent, the T
/// rows from `first` on.
struct RowSelection {
  int64_t first = 0;
  MatrixView ids{};

  static RowSelection from(int64_t row) { return {row, {}}; }
};

/// Where an object of the host's own lies (id<MTLBuffer>), as the device sees it.
struct NativeMemory {
  uint64_t address = 0, bytes = 0;
};

struct BackendOptions {
  int32_t device_index = 0;
  uint32_t threads = 0;  ///< 0: as many as the process may use
  void* native_device = nullptr;
  std::string kernel{};  ///< the one to take, of METAL_MARLIN_KERNEL; empty: the best
  Allocator allocator = Allocator::system();
  Logger logger{};
  std::shared_ptr<Tracer> tracer{};  ///< null: nothing is timed
  /// The host's thread pool, or null: the backend's own.
  void (*parallel_for)(void* user, uint32_t tasks, void (*task)(void*, uint32_t),
                       void* task_user) = nullptr;
  void* parallel_for_user = nullptr;
};

/// One usable device. All members are safe to call from several threads at once; a stream is not.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Result<std::unique_ptr<PackedWeights>> pack(const WeightSource& source) = 0;
  /// The bytes that pack() would take, padding included.
  virtual Result<uint64_t> packed_bytes(const WeightSource& source) = 0;
  /// Packs experts of one shape and format, in a place that suits products of a mixture of experts.
  virtual Result<ExpertStack> pack_experts(std::span<const std::unique_ptr<WeightSource>> experts) {
    ExpertStack stack;
    for (const auto& expert : experts) {
      MARLIN_ASSIGN(auto one, pack(*expert));
      stack.push_back(std::move(one));
    }
    return stack;
  }
  /// The form in which a file keeps what pack() makes.
  virtual PackedForm packed_form() const = 0;
  /// The bytes of packed weights. They live as long as the weights. MARLIN_E_UNSUPPORTED if the
  /// host does not reach them.
  virtual Result<PackedMatrix> packed_matrix(const PackedWeights& weights) const = 0;
  /// The experts of one handle over bytes of packed_form(): in place if the device reaches memory
  /// of the host, else in a copy of its own. `memory` keeps alive the whole pages on which the
  /// bytes lie. Checks everything but the values that no address follows from.
  virtual Result<ExpertStack> adopt(std::span<const PackedMatrix> experts,
                                    const std::shared_ptr<const void>& memory) = 0;
  /// Decodes rows to out [T, k], F32, F16 or BF16. Consecutive rows are inside [0, n). Listed ids
  /// are checked here: they may lie where only the device reads them.
  virtual Status unpack(BackendStream* stream, const PackedWeights& weights,
                        const RowSelection& rows, const MatrixView& out) = 0;
  /// `bytes` > 0, aligned to 64, zero-filled.
  virtual Result<std::unique_ptr<SharedMemory>> allocate(uint64_t bytes) = 0;
  /// Of MARLIN_MEM_METAL operands; MARLIN_E_ARGUMENT for what is no object of this device. Asked
  /// only of a Metal backend.
  virtual Result<NativeMemory> native_memory(void* native) = 0;
  virtual Result<std::unique_ptr<BackendStream>> create_stream(const StreamOptions& options) = 0;
  /// How the product will run; MARLIN_E_UNSUPPORTED with the reason when this backend cannot do it.
  /// The plan depends on types, shapes and M (with routing: T), never on pointers or strides, and
  /// serves any operands of the same ones.
  virtual Result<Plan> plan(const GemmProblem& problem) = 0;
  /// Independent products, each with the plan that plan() made for it; M may be 0. stream may be
  /// null: done on return, scratch from a cache of the backend.
  virtual Status gemm(BackendStream* stream, std::span<const PlannedGemm> products) = 0;
  /// Reserves for M (with routing: T) up to max_m, whatever M the plans are for. Returns the bytes
  /// of scratch, of any alignment, that gemm() of all these products at once needs.
  virtual Result<uint64_t> prepare(BackendStream* stream, std::span<const PlannedGemm> products,
                                   int64_t max_m) = 0;
  virtual Status flush(BackendStream& stream) = 0;
  virtual Status wait(BackendStream& stream, uint64_t timeout_ns) = 0;
  /// Flushes, and calls `done` once when the work so far has ended, but for an error of this call.
  virtual Status notify(BackendStream& stream, void (*done)(void* user, marlin_status status),
                        void* user) = 0;
  /// "kernel: NAME\n" and then "key: value\n" lines.
  virtual Result<std::string> explain(const PlannedGemm& product) = 0;
};

}  // namespace metal_marlin
