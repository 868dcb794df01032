// How the rewritten shader hands its kernels and threadgroup variables to the runtime.
#pragma once
#include <utility>

#include "tensor.h"

namespace msl {

template <class A>
struct Argument {  // a value: [[thread_position_in_grid]] and its like
  static constexpr bool read_only = true;
  static constexpr uint32_t reference = 0;
  static MSL_RUNTIME A get(const Param& p, const Arguments& all) { return builtin_of<A>(all.builtins[p.builtin]); }
};
template <class T>
struct Argument<T*> {
  static constexpr bool read_only = std::is_const_v<T>;
  static constexpr uint32_t reference = 0;
  static MSL_RUNTIME T* get(const Param& p, const Arguments& all) {
    if (!exists(p)) return nullptr;
    return reinterpret_cast<T*>(all.buffers[p.index]);
  }
};
template <class T>
struct Argument<T&> {
  static constexpr bool read_only = std::is_const_v<T>;
  static constexpr uint32_t reference = sizeof(T);
  static MSL_RUNTIME T& get(const Param& p, const Arguments& all) { return *Argument<T*>::get(p, all); }
};

template <class F>
struct Invoke;
template <class... A>
struct Invoke<void (*)(A...)> {
  template <size_t... I>
  static MSL_RUNTIME void spread(const Kernel& k, const Arguments& all, std::index_sequence<I...>) {
    reinterpret_cast<void (*)(A...)>(const_cast<void*>(k.function))(Argument<A>::get(k.params[I], all)...);
  }
  static MSL_RUNTIME void run(const Kernel& k, const Arguments& all) { spread(k, all, std::index_sequence_for<A...>{}); }
  /// The properties of the parameters that only their types tell.
  template <uint32_t N>
  struct Table {
    Param entries[N ? N : 1];
  };
  template <uint32_t N>
  static constexpr Table<N> complete(Table<N> table) {
    static_assert(N == sizeof...(A), "parameters");
    uint32_t i = 0;
    ((table.entries[i].read_only = Argument<A>::read_only, table.entries[i].reference = Argument<A>::reference, i++), ...);
    return table;
  }
};
template <uint32_t N>
struct Params {
  Param entries[N ? N : 1];
};
/// A kernel's parameters with the properties that only the types of instantiation F tell.
template <class F, const auto& Base, uint32_t N>
struct Completed {
  using Table = typename Invoke<F>::template Table<N>;
  static constexpr Table make() {
    Table t{};
    for (uint32_t i = 0; i < N; i++) t.entries[i] = Base.entries[i];
    return Invoke<F>::complete(t);
  }
  static constexpr Table table = make();
};

/// A function constant that is not folded: a dispatch gives its value, and reading it without one is a finding.
template <class T, uint32_t index>
struct Constant {
  const char* name;
  MSL_INLINE operator T() const { return static_cast<T>(msl_constant(index, name)); }
};
template <uint32_t index>
struct ConstantDefined {
  MSL_INLINE operator bool() const { return msl_constant_defined(index); }
};
}  // namespace msl

#ifdef MSL_GPU
namespace msl {
/// The kernel f as a kernel of a GPU. Base are its parameters.
template <auto f, const auto& Base>
struct OnGpu;
template <class... A, void (*f)(A...), const auto& Base>
struct OnGpu<f, Base> {
  template <size_t... I>
  static MSL_INLINE void spread(void* const* buffers, std::index_sequence<I...>) {
    f(OnGpuArgument<A>::get(Base.entries[I].builtin, buffers[Base.entries[I].index])...);
  }
  static __attribute__((amdgpu_kernel, used)) void run(Buffers all) { spread(all.of, std::index_sequence_for<A...>{}); }
};
}  // namespace msl
#endif

#define MSL_CONCAT_(a, b) a##b
#define MSL_CONCAT(a, b) MSL_CONCAT_(a, b)
#ifdef MSL_GPU
#define MSL_KERNEL(id, name, base, count, threads, file, first, last, ...) \
  template struct msl::OnGpu<static_cast<decltype(&__VA_ARGS__)>(&__VA_ARGS__), base>;
#define MSL_THREADGROUP(type, id, name)                                                                                 \
  static __attribute__((address_space(3), loader_uninitialized, aligned(16))) unsigned char name##_bytes[sizeof(type)]; \
  type& name = *(type*)(name##_bytes)
#define is_function_constant_defined(x) msl_defined_##x
#else
// msl_kernels is a section of the image: the linker gathers all kernels there, no code runs at load time.
#define MSL_KERNEL(id, name, base, count, threads, file, first, last, ...)              \
  __attribute__((used, section("msl_kernels"))) static const msl::Kernel id = {         \
      name,                                                                             \
      &msl::Invoke<decltype(&__VA_ARGS__)>::run,                                        \
      reinterpret_cast<const void*>(static_cast<decltype(&__VA_ARGS__)>(&__VA_ARGS__)), \
      msl::Completed<decltype(&__VA_ARGS__), base, count>::table.entries,               \
      count,                                                                            \
      threads,                                                                          \
      file,                                                                             \
      first,                                                                            \
      last};
#define MSL_THREADGROUP(type, id, name) \
  type& name = *reinterpret_cast<type*>(msl_threadgroup_variable(id, sizeof(type), alignof(type), #name, __FILE__, __LINE__))
#define is_function_constant_defined(x) msl_defined_##x

// The section exists even in a shader without kernels.
extern const msl::Kernel msl_first_kernel[] __asm__("__start_msl_kernels") __attribute__((visibility("hidden"), weak));
extern const msl::Kernel msl_end_of_kernels[] __asm__("__stop_msl_kernels") __attribute__((visibility("hidden"), weak));
extern "C" __attribute__((visibility("default"), used)) inline const msl::Kernel* msl_image_kernels(uint32_t* count) {
  *count = static_cast<uint32_t>(msl_end_of_kernels - msl_first_kernel);
  return msl_first_kernel;
}
#endif
