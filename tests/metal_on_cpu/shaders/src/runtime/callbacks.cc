// The functions that images call. Those of the sanitizers have the names that the IR pass gave them.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "worker.h"

using metal_on_cpu::Access;
using metal_on_cpu::Finding;
using metal_on_cpu::Where;
using metal_on_cpu::Worker;

namespace {

struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
// The layouts that clang gives to the data of UndefinedBehaviorSanitizer's checks.
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];
};
struct OutOfBounds {
  SourceLocation place;
  const TypeDescriptor *array, *index;
};

void report_misaligned(Worker* w, const Access& access, uintptr_t align) {
  if (Finding* f = w->report("misaligned-access", access.where)) {
    char text[96];
    std::snprintf(text, sizeof text, "%s %zu bytes at address 0x%zx, which is no multiple of %zu",
                  access.write ? "writes" : "reads", access.bytes, static_cast<size_t>(access.address),
                  static_cast<size_t>(align));
    f->message = text;
  }
  w->abandon();
}

// Out of line, so that what is inlined into the hooks saves no registers.
__attribute__((noinline)) void look_at(const void* p, size_t bytes, bool write, const void* pc, uintptr_t align) {
  Worker* w = Worker::current();
  if (!w || !w->lane()) return;
  const Access access{reinterpret_cast<uintptr_t>(p), bytes, write, Where::address(pc)};
  // Null has a better name.
  if (access.address % align != 0 && access.address >= metal_on_cpu::kPage) report_misaligned(w, access, align);
  w->access(access);
}

// Most accesses are to variables of the thread, and right.
template <size_t kBytes, uintptr_t kAlign>
inline void access(const void* p, bool write, const void* pc) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const Worker* w = Worker::current();
  if (w && address % kAlign == 0 && w->good_stack<kBytes>(address)) return;
  look_at(p, kBytes, write, pc, kAlign);
}

// 'msl_type_6_x' (aka 'float[4]'), as the rewriter calls the type of threadgroup variable x: 'x'.
std::string shaders_name(const std::string& type) {
  static constexpr std::string_view kOurs = "'msl_type_";
  if (!type.starts_with(kOurs)) return type;
  const size_t name = type.find('_', kOurs.size()), end = type.find('\'', kOurs.size());
  return name < end ? "'" + type.substr(name + 1, end - name) : type;
}

// Code behind a failed check would go on with what it may not have.
void stop(const char* kind, const SourceLocation& place, const std::string& message) {
  Worker* w = Worker::current();
  if (!w || !w->lane()) return;
  if (Finding* f = w->report(kind, Where::place(place.file, place.line))) f->message = message;
  w->abandon();
}

}  // namespace

#define MSL_EXPORT extern "C" __attribute__((visibility("default")))

MSL_EXPORT void msl_threadgroup_barrier(uint32_t flags, const char* file, uint32_t line, uint32_t column) {
  Worker::current()->wait_at_barrier(flags, {file, line, column});
}
MSL_EXPORT void msl_simdgroup_barrier(uint32_t flags, const char* file, uint32_t line, uint32_t column) {
  Worker::current()->wait_at_simdgroup_barrier(flags, {file, line, column});
}
MSL_EXPORT void msl_collective(uint32_t kind, void* lane, msl::Resolve resolve, const char* file, uint32_t line,
                               uint32_t column) {
  Worker::current()->wait_at_collective(kind, lane, resolve, {file, line, column});
}
MSL_EXPORT void msl_tensor_operation(uint32_t simdgroups, const msl::TensorOperation* what, void* lane, msl::Resolve resolver,
                                     const char* file, uint32_t line, uint32_t column) {
  Worker::current()->wait_at_tensor_operation(simdgroups, *what, lane, resolver, {file, line, column});
}
MSL_EXPORT msl::Participant msl_participant(uint32_t simdgroups) {
  const Worker& w = *Worker::current();
  const uint32_t thread = w.lane()->index;
  return {simdgroups == 1 ? thread % metal_on_cpu::kSimdWidth : thread, w.job().seed, w.job().hides_fragments};
}
MSL_EXPORT void msl_read(const void* p, size_t size, const char* file, uint32_t line) {
  Worker::current()->access({reinterpret_cast<uintptr_t>(p), size, false, Where::place(file, line)});
}
MSL_EXPORT void msl_out_of_slice(int dimension, long at, long size, long there, const char* file, uint32_t line,
                                 uint32_t column) {
  stop("out-of-bounds-slice", {file, line, column},
       "dimension " + std::to_string(dimension) + ": " + std::to_string(size) + " elements from " + std::to_string(at) +
           " on, of " + std::to_string(there));
}
MSL_EXPORT void msl_invalid_element(uint32_t element) {
  Worker* w = Worker::current();
  if (Finding* f = w->report("invalid-tensor-element", Where::address(__builtin_return_address(0)))) {
    f->message = "slot " + std::to_string(element) + " of a cooperative tensor holds no element in this thread";
  }
  w->abandon();
}
MSL_EXPORT uint32_t msl_lane() { return Worker::current()->lane()->index % metal_on_cpu::kSimdWidth; }
MSL_EXPORT void* msl_threadgroup_variable(uint32_t id, size_t size, size_t align, const char* name, const char* file,
                                          uint32_t line) {
  return Worker::current()->variable(id, size, align, name, Where::place(file, line));
}
MSL_EXPORT void msl_inactive_lane(uint32_t, uint32_t source) {
  Worker* w = Worker::current();
  if (!w->job().checked) return;
  if (Finding* f = w->report("inactive-lane", w->collective_place())) {
    f->message =
        "a lane takes the value of lane " + std::to_string(static_cast<int32_t>(source)) + ", which is not active here";
  }
}
MSL_EXPORT void msl_vector_index(long index, int size, const char* file, uint32_t line) {
  Worker* w = Worker::current();
  if (!w || !w->lane()) return;
  // Inlined into the shader: the return address tells its line, `file` and `line` are the prelude's.
  (void)file, (void)line;
  if (Finding* f = w->report("out-of-bounds-thread-array", Where::address(__builtin_return_address(0)))) {
    f->message = "component " + std::to_string(index) + " of a vector of " + std::to_string(size);
  }
  w->abandon();
}
MSL_EXPORT bool msl_constant_defined(uint32_t index) { return metal_on_cpu::GivenConstants::find(index) != nullptr; }
MSL_EXPORT double msl_constant(uint32_t index, const char* name) {
  if (const double* value = metal_on_cpu::GivenConstants::find(index)) return *value;
  Worker* w = Worker::current();
  if (!w || !w->lane()) return 0;
  if (Finding* f = w->report("undefined-function-constant", Where::address(__builtin_return_address(0)))) {
    f->message = std::string("function constant '") + name + "' is read but has no value";
  }
  w->abandon();
  return 0;
}
MSL_EXPORT void msl_uninitialized_use(bool unknown) {
  Worker* w = Worker::current();
  if (!unknown || !w || !w->lane()) return;
  if (Finding* f = w->report("uninitialized-variable", Where::address(__builtin_return_address(0))))
    f->message = "what happens here depends on a variable of the thread that has no value";
}
MSL_EXPORT void msl_uninitialized_copy(const uint8_t* shadow, size_t bytes, size_t padding) {
  Worker* w = Worker::current();
  if (bytes <= padding || !w || !w->lane()) return;
  if (std::count(shadow, shadow + bytes, 0xff) < static_cast<std::ptrdiff_t>(bytes - padding)) return;
  if (Finding* f = w->report("uninitialized-variable", Where::address(__builtin_return_address(0))))
    f->message = "copies " + std::to_string(bytes) + " bytes of a variable of the thread that has no value";
}
// In front of a shuffle, on whose way no other lane runs.
MSL_EXPORT void msl_pass_shadow(uint8_t* shadows) {
  Worker* w = Worker::current();
  if (w && w->lane()) w->pass_shadow(shadows);
}
MSL_EXPORT uint8_t* msl_take_shadow() {
  Worker* w = Worker::current();
  return w ? w->take_shadow() : nullptr;
}
MSL_EXPORT void msl_block(uint32_t number) {
  Worker* w = Worker::current();
  if (w && w->lane()) w->block(number, __builtin_return_address(0));
}

// The pass has put the alignment that the code relies on behind the size.
#define MSL_ASAN_ALIGNED(n, a)                                                                                        \
  MSL_EXPORT void msl_asan_load##n##_align##a(const void* p) { access<n, a>(p, false, __builtin_return_address(0)); } \
  MSL_EXPORT void msl_asan_store##n##_align##a(const void* p) { access<n, a>(p, true, __builtin_return_address(0)); }
#define MSL_ASAN_ACCESS(n) \
  MSL_ASAN_ALIGNED(n, 1) MSL_ASAN_ALIGNED(n, 2) MSL_ASAN_ALIGNED(n, 4) MSL_ASAN_ALIGNED(n, 8) MSL_ASAN_ALIGNED(n, 16)
MSL_ASAN_ACCESS(1)
MSL_ASAN_ACCESS(2)
MSL_ASAN_ACCESS(4)
MSL_ASAN_ACCESS(8)
MSL_ASAN_ACCESS(16)
// In front of a copy, whose hook knows no alignment.
MSL_EXPORT void msl_alignment(const void* p, size_t bytes, size_t align, bool write) {
  Worker* w = Worker::current();
  const auto address = reinterpret_cast<uintptr_t>(p);
  if (!w || !w->lane() || address % align == 0 || address < metal_on_cpu::kPage) return;
  report_misaligned(w, {address, bytes, write, Where::address(__builtin_return_address(0))}, align);
}
MSL_EXPORT void msl_asan_loadN_noabort(const void* p, size_t n) { look_at(p, n, false, __builtin_return_address(0), 1); }
MSL_EXPORT void msl_asan_storeN_noabort(const void* p, size_t n) { look_at(p, n, true, __builtin_return_address(0), 1); }
MSL_EXPORT void* msl_asan_memcpy(void* to, const void* from, size_t n) {
  look_at(from, n, false, __builtin_return_address(0), 1);
  look_at(to, n, true, __builtin_return_address(0), 1);
  return std::memcpy(to, from, n);
}
MSL_EXPORT void* msl_asan_memmove(void* to, const void* from, size_t n) {
  look_at(from, n, false, __builtin_return_address(0), 1);
  look_at(to, n, true, __builtin_return_address(0), 1);
  return std::memmove(to, from, n);
}
MSL_EXPORT void* msl_asan_memset(void* to, int value, size_t n) {
  look_at(to, n, true, __builtin_return_address(0), 1);
  return std::memset(to, value, n);
}
MSL_EXPORT void msl_asan_handle_no_return() {}

// Redzones round the variables of a frame. The address given is that of the shadow byte with an offset of 0: address / 8.
#define MSL_ASAN_SHADOW(value)                                                        \
  MSL_EXPORT void msl_asan_set_shadow_##value(uintptr_t shadow, size_t bytes) {       \
    if (Worker* w = Worker::current()) w->shadow_stack(shadow * 8, bytes, 0x##value); \
  }
MSL_ASAN_SHADOW(00)
MSL_ASAN_SHADOW(01)
MSL_ASAN_SHADOW(02)
MSL_ASAN_SHADOW(03)
MSL_ASAN_SHADOW(04)
MSL_ASAN_SHADOW(05)
MSL_ASAN_SHADOW(06)
MSL_ASAN_SHADOW(07)
MSL_ASAN_SHADOW(f1)
MSL_ASAN_SHADOW(f2)
MSL_ASAN_SHADOW(f3)
MSL_ASAN_SHADOW(f5)
MSL_ASAN_SHADOW(f8)
MSL_EXPORT void msl_asan_alloca_poison(uintptr_t, uintptr_t) {}
MSL_EXPORT void msl_asan_allocas_unpoison(uintptr_t, uintptr_t) {}

MSL_EXPORT void msl_ubsan_handle_out_of_bounds(const OutOfBounds* data, uintptr_t index) {
  stop("out-of-bounds-thread-array", data->place,
       "index " + std::to_string(static_cast<int64_t>(index)) + " into " + shaders_name(data->array->name));
}
