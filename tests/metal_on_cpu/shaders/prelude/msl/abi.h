// What a compiled shader image and the runtime know of each other. Included by both, so plain C++ without the standard library.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace msl {

struct Uint3 {
  uint32_t x, y, z;
};

/// The values that an attribute of a kernel parameter may ask for.
enum Builtin : uint8_t {
  kThreadPositionInGrid,
  kThreadgroupPositionInGrid,
  kThreadPositionInThreadgroup,
  kThreadIndexInThreadgroup,
  kThreadIndexInSimdgroup,
  kSimdgroupIndexInThreadgroup,
  kSimdgroupsPerThreadgroup,
  kThreadsPerThreadgroup,
  kThreadgroupsPerGrid,
  kBuiltinCount
};

enum ParamKind : uint8_t { kBufferParam, kBuiltinParam };

struct Param {
  ParamKind kind;
  Builtin builtin;     // of kBuiltinParam
  bool read_only;      // pointer or reference to const
  bool (*enabled)();   // what its [[function_constant]] says; null: there is none, and the argument exists
  int32_t index;       // of buffer(n)
  uint32_t reference;  // size of what a reference refers to, in bytes; 0 for a pointer
  const char* name;
};

inline bool exists(const Param& p) { return !p.enabled || p.enabled(); }

struct Arguments {
  void* const* buffers;
  Uint3 builtins[kBuiltinCount];
};

struct Kernel {
  const char* name;
  void (*run)(const Kernel&, const Arguments&);
  const void* function;
  const Param* params;
  uint32_t param_count;
  uint32_t max_threads;  // [[max_total_threads_per_threadgroup(n)]], or 0
  const char* file;
  uint32_t first_line, last_line;
};

/// What the pass of checked mode adds to an image, as msl_image_tables.
struct Tables {
  uint32_t block_count;
  const uint32_t* operations;  // of each basic block, by class: see src/compiler/operations.h
};

/// What the lanes of a simdgroup do together.
enum Collective : uint8_t {
  kBarrier,
  kReduction,
  kShuffle,
  kMatrixMultiply,   // undefined unless all 32 lanes take part
  kTensorOperation,  // undefined unless all threads of its simdgroups take part
};

/// A multiplication of tensors: what every thread must pass alike.
struct TensorOperation {
  const void* operands[2];
  int64_t shape[5];
  uint64_t multiply_adds;
};
/// A thread among those that hold a cooperative tensor, the dispatch's seed, and whether it hides who holds which element.
struct Participant {
  uint32_t thread;
  uint64_t seed;
  bool hidden;
};

/// Bytes of the shadow of what a shuffle takes, and of the shadow of what it gives.
constexpr size_t kShuffleShadow = 16;

/// Computes the results of all active lanes; lanes[i] is what lane i handed in.
using Resolve = void (*)(void** lanes, uint32_t active);

}  // namespace msl

// The runtime's side, called by images. `line` and `column` name the call in the shader.
extern "C" {
void msl_threadgroup_barrier(uint32_t flags, const char* file, uint32_t line, uint32_t column);
void msl_collective(uint32_t kind, void* lane, msl::Resolve resolve, const char* file, uint32_t line, uint32_t column);
void msl_simdgroup_barrier(uint32_t flags, const char* file, uint32_t line, uint32_t column);
uint32_t msl_lane();
void* msl_threadgroup_variable(uint32_t id, size_t size, size_t align, const char* name, const char* file, uint32_t line);
void msl_inactive_lane(uint32_t reader, uint32_t source);
void msl_vector_index(long index, int size, const char* file, uint32_t line);
__attribute__((const)) double msl_constant(uint32_t index, const char* name);
__attribute__((const)) bool msl_constant_defined(uint32_t index);
void msl_tensor_operation(uint32_t simdgroups, const msl::TensorOperation* what, void* lane, msl::Resolve resolve,
                          const char* file, uint32_t line, uint32_t column);
msl::Participant msl_participant(uint32_t simdgroups);
void msl_read(const void* address, size_t size, const char* file, uint32_t line);
void msl_out_of_slice(int dimension, long at, long size, long there, const char* file, uint32_t line, uint32_t column);
void msl_invalid_element(uint32_t element);
void msl_uninitialized_use(bool unknown);
void msl_uninitialized_copy(const uint8_t* shadow, size_t bytes, size_t padding);
void msl_pass_shadow(uint8_t* shadows);
uint8_t* msl_take_shadow();
void msl_alignment(const void* address, size_t bytes, size_t align, bool write);
}
