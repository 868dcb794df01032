// SPDX-License-Identifier: Apache-2.0
//
// metal-marlin for C++17: owners for the handles of metal_marlin.h, and errors as exceptions. Nothing else is added and nothing
// hidden: descriptors are those of the C header, and its rules hold.
//
//   namespace mm = metal_marlin;
//   mm::context context(MARLIN_BACKEND_AUTO);
//   mm::checkpoint file("model.safetensors");
//   mm::weights down = mm::load(context, file, "model.layers.0.mlp.down_proj");
//
//   auto desc = mm::make<marlin_gemm_desc>();
//   desc.weights = down.get();
//   desc.a = mm::matrix_view(x.data(), rows, k);                    // std::vector<float> x, y
//   desc.c = mm::matrix_view(y.data(), rows, n);
//   mm::gemm(desc);                                                 // throws mm::error
//
// Every owner is movable, not copyable, and empty when default-constructed or moved from. get() lends the handle,
// release() gives it away, and the constructor from a handle takes one over. out() destroys what is held and returns where a C
// function may put a new handle: the way to do without exceptions, which is all that is left under -fno-exceptions:
//
//   mm::weights w;
//   marlin_status status = marlin_weights_load(context.get(), file.get(), &load, w.out(), nullptr);
#ifndef METAL_MARLIN_METAL_MARLIN_HPP_
#define METAL_MARLIN_METAL_MARLIN_HPP_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin {

/// A descriptor or output struct, all zero but its struct_size.
template <class Struct>
inline Struct make() noexcept {
  Struct s{};
  s.struct_size = sizeof(Struct);
  return s;
}

/// Element types that C++17 has no name for, as bits. A type of your own serves too: specialize dtype_of for it.
struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

template <marlin_dtype Value>
using dtype_constant = std::integral_constant<marlin_dtype, Value>;

/// The marlin_dtype of an element type.
template <class T>
struct dtype_of : dtype_constant<0> {
  static_assert(!std::is_same_v<T, T>,
                "the library has no such elements (double has no marlin_dtype): expected float, metal_marlin::f16, "
                "metal_marlin::bf16, std::int8_t, uint8_t, int16_t, int32_t, uint32_t, int64_t, or a type of your own with a "
                "specialization of metal_marlin::dtype_of");
};
template <>
struct dtype_of<float> : dtype_constant<MARLIN_F32> {};
template <>
struct dtype_of<f16> : dtype_constant<MARLIN_F16> {};
template <>
struct dtype_of<bf16> : dtype_constant<MARLIN_BF16> {};
template <>
struct dtype_of<std::int8_t> : dtype_constant<MARLIN_I8> {};
template <>
struct dtype_of<std::uint8_t> : dtype_constant<MARLIN_U8> {};
template <>
struct dtype_of<std::int16_t> : dtype_constant<MARLIN_I16> {};
template <>
struct dtype_of<std::int32_t> : dtype_constant<MARLIN_I32> {};
template <>
struct dtype_of<std::uint32_t> : dtype_constant<MARLIN_U32> {};
template <>
struct dtype_of<std::int64_t> : dtype_constant<MARLIN_I64> {};

/// Host memory as a row-major matrix; row_stride counts elements, 0 means cols. T may be const: inputs are only read.
template <class T>
inline marlin_matrix matrix_view(T* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride = 0) noexcept {
  using element = std::remove_const_t<T>;
  marlin_matrix m{};
  m.data = const_cast<element*>(data);
  m.rows = rows;
  m.cols = cols;
  m.row_stride = row_stride;
  m.dtype = dtype_of<element>::value;
  return m;
}

/// Memory on a CUDA device as such a matrix: device, managed or pinned memory, of which T is an address there. Nothing is read.
template <class T>
inline marlin_matrix cuda_view(T* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride = 0) noexcept {
  marlin_matrix m = matrix_view(data, rows, cols, row_stride);
  m.memory = MARLIN_MEM_CUDA;
  return m;
}

/// Owns one handle of the C header.
template <class Handle, void (*Destroy)(Handle*)>
class owner {
 public:
  owner() noexcept = default;
  explicit owner(Handle* handle) noexcept : handle_(handle) {}
  owner(owner&& other) noexcept : handle_(other.release()) {}
  owner& operator=(owner&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~owner() { Destroy(handle_); }

  Handle* get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  Handle* release() noexcept { return std::exchange(handle_, nullptr); }
  void reset(Handle* handle = nullptr) noexcept { Destroy(std::exchange(handle_, handle)); }
  /// Empty now; a C function may fill it.
  Handle** out() noexcept {
    reset();
    return &handle_;
  }

 private:
  Handle* handle_ = nullptr;
};

/// What failed: a marlin_status, the device's or system's own code, and the message.
class error : public std::exception {
 public:
  explicit error(const marlin_error& e) noexcept : error_(e) {}
  marlin_status status() const noexcept { return error_.status; }
  std::int32_t native_code() const noexcept { return error_.native_code; }
  const char* what() const noexcept override { return error_.message; }

 private:
  marlin_error error_;
};

#if !defined(__cpp_exceptions)

using context = owner<marlin_context, marlin_context_destroy>;
using stream = owner<marlin_stream, marlin_stream_destroy>;
using buffer = owner<marlin_buffer, marlin_buffer_destroy>;
using weights = owner<marlin_weights, marlin_weights_destroy>;
using checkpoint = owner<marlin_checkpoint, marlin_checkpoint_destroy>;

#else

/// Calls a C function with these arguments and a marlin_error behind them; throws what it reports.
template <class... Parameters, class... Arguments>
inline void call(marlin_status (*function)(Parameters...), Arguments... arguments) {
  auto err = make<marlin_error>();
  const marlin_status status = function(arguments..., &err);
  if (status != MARLIN_OK) throw error(err);
}

using weights = owner<marlin_weights, marlin_weights_destroy>;

class context : public owner<marlin_context, marlin_context_destroy> {
 public:
  using owner::owner;
  context() noexcept = default;
  explicit context(marlin_backend backend) {
    auto desc = make<marlin_context_desc>();
    desc.backend = backend;
    call(marlin_context_create, &desc, out());
  }
  explicit context(const marlin_context_desc& desc) { call(marlin_context_create, &desc, out()); }
};

class stream : public owner<marlin_stream, marlin_stream_destroy> {
 public:
  using owner::owner;
  stream() noexcept = default;
  explicit stream(const context& of) { call(marlin_stream_create, of.get(), nullptr, out()); }
  stream(const context& of, const marlin_stream_desc& desc) { call(marlin_stream_create, of.get(), &desc, out()); }
  /// On top of the host's own, such as a cudaStream_t with MARLIN_NATIVE_CUDA_STREAM. `native` must outlive this stream.
  stream(const context& of, marlin_native kind, void* native) {
    auto desc = make<marlin_stream_desc>();
    desc.kind = kind;
    desc.native = native;
    call(marlin_stream_create, of.get(), &desc, out());
  }
  void flush() { call(marlin_stream_flush, get()); }
  void wait() { call(marlin_stream_wait, get(), UINT64_MAX); }
  void notify(void (*done)(void* user, marlin_status status), void* user) { call(marlin_stream_notify, get(), done, user); }
  /// False when the work was not done in time. 0 polls.
  bool wait_for(std::uint64_t timeout_ns) {
    auto err = make<marlin_error>();
    const marlin_status status = marlin_stream_wait(get(), timeout_ns, &err);
    if (status != MARLIN_OK && status != MARLIN_E_TIMEOUT) throw error(err);
    return status == MARLIN_OK;
  }
};

class buffer : public owner<marlin_buffer, marlin_buffer_destroy> {
 public:
  using owner::owner;
  buffer() noexcept = default;
  buffer(const context& of, std::uint64_t bytes) { call(marlin_buffer_create, of.get(), bytes, out()); }
  /// The host's view of it.
  void* data() const noexcept { return marlin_buffer_host(get()); }
  /// A matrix inside it, from a byte offset on.
  template <class T>
  marlin_matrix matrix(std::int64_t rows, std::int64_t cols, std::uint64_t offset_bytes = 0) const noexcept {
    marlin_matrix m = matrix_view(static_cast<T*>(nullptr), rows, cols);
    m.data = get();
    m.offset_bytes = offset_bytes;
    m.memory = MARLIN_MEM_BUFFER;
    return m;
  }
};

class checkpoint : public owner<marlin_checkpoint, marlin_checkpoint_destroy> {
 public:
  using owner::owner;
  checkpoint() noexcept = default;
  explicit checkpoint(const std::string& path) { call(marlin_checkpoint_open, path.c_str(), nullptr, out()); }
  checkpoint(const std::string& path, const marlin_open_desc& desc) {
    call(marlin_checkpoint_open, path.c_str(), &desc, out());
  }
  /// All layers, in file order. Their names live as long as the checkpoint.
  std::vector<marlin_layer_info> layers() const {
    std::vector<marlin_layer_info> all;
    auto info = make<marlin_layer_info>();
    auto err = make<marlin_error>();
    marlin_status status;
    while ((status = marlin_checkpoint_layer(get(), all.size(), &info, &err)) == MARLIN_OK) all.push_back(info);
    if (status != MARLIN_E_NOT_FOUND) throw error(err);
    return all;
  }
  /// Borrowed, read-only, valid while the checkpoint lives.
  marlin_matrix tensor(const std::string& name) const {
    marlin_matrix m;
    call(marlin_checkpoint_tensor, get(), name.c_str(), &m);
    return m;
  }
  /// A key-value, valid while the checkpoint lives. Throws if it is not there.
  marlin_value value(const std::string& key) const {
    auto value = make<marlin_value>();
    call(marlin_checkpoint_value, get(), key.c_str(), &value);
    return value;
  }
  /// All key-values, in file order.
  std::vector<marlin_value> values() const {
    std::vector<marlin_value> all;
    auto value = make<marlin_value>();
    auto err = make<marlin_error>();
    marlin_status status;
    while ((status = marlin_checkpoint_value_at(get(), all.size(), &value, &err)) == MARLIN_OK) all.push_back(value);
    if (status != MARLIN_E_NOT_FOUND) throw error(err);
    return all;
  }
};

/// The strings of an array of strings, valid while its checkpoint lives.
inline std::vector<std::string_view> strings_of(const marlin_value& array) {
  std::vector<std::string_view> all;
  auto err = make<marlin_error>();
  const char* text = nullptr;
  std::uint64_t bytes = 0;
  marlin_status status;
  while ((status = marlin_value_next_string(&array, &text, &bytes, &err)) == MARLIN_OK) all.emplace_back(text, bytes);
  if (status != MARLIN_E_NOT_FOUND) throw error(err);
  return all;
}

/// All devices, unusable ones included.
inline std::vector<marlin_device_info> devices() {
  std::vector<marlin_device_info> all;
  auto info = make<marlin_device_info>();
  auto err = make<marlin_error>();
  marlin_status status;
  while ((status = marlin_device_get(static_cast<std::uint32_t>(all.size()), &info, &err)) == MARLIN_OK) all.push_back(info);
  if (status != MARLIN_E_NOT_FOUND) throw error(err);
  return all;
}

inline weights load(const context& to, const checkpoint& from, const marlin_load_desc& desc) {
  weights w;
  call(marlin_weights_load, to.get(), from.get(), &desc, w.out());
  return w;
}
/// Whole layers as one handle, concatenated along N: {"...gate_proj", "...up_proj"}.
inline weights load(const context& to, const checkpoint& from, std::initializer_list<const char*> layers) {
  auto desc = make<marlin_load_desc>();
  desc.layers = layers.begin();
  desc.layer_count = static_cast<std::uint32_t>(layers.size());
  return load(to, from, desc);
}
inline weights load(const context& to, const checkpoint& from, const std::vector<std::string>& layers) {
  std::vector<const char*> names;
  for (const std::string& layer : layers) names.push_back(layer.c_str());
  auto desc = make<marlin_load_desc>();
  desc.layers = names.data();
  desc.layer_count = static_cast<std::uint32_t>(names.size());
  return load(to, from, desc);
}
/// One whole layer.
inline weights load(const context& to, const checkpoint& from, const std::string& layer) {
  return load(to, from, {layer.c_str()});
}

/// Writes a checkpoint again with some layers quantized.
inline void convert(const checkpoint& from, const std::string& out_path, const marlin_convert_desc& desc) {
  call(marlin_checkpoint_convert, from.get(), out_path.c_str(), &desc);
}

/// Writes a packed container (.marlin), by default of every layer that loads.
inline void save(const context& packing, const checkpoint& from, const std::string& out_path, const marlin_save_desc& desc) {
  call(marlin_checkpoint_save, packing.get(), from.get(), out_path.c_str(), &desc);
}
inline void save(const context& packing, const checkpoint& from, const std::string& out_path) {
  save(packing, from, out_path, make<marlin_save_desc>());
}

/// The addresses of the elements, as C functions want them.
template <class Struct>
inline std::vector<const Struct*> addresses(const std::vector<Struct>& all) {
  std::vector<const Struct*> each;
  for (const Struct& one : all) each.push_back(&one);
  return each;
}

/// Parts, concatenated along N; of as many experts, all of the first expert first.
inline weights pack(const context& to, const std::vector<marlin_pack_desc>& parts, std::uint32_t experts = 1) {
  weights w;
  call(marlin_weights_pack, to.get(), addresses(parts).data(), static_cast<std::uint32_t>(parts.size()), experts, w.out());
  return w;
}
inline weights pack(const context& to, const marlin_pack_desc& desc) { return pack(to, std::vector<marlin_pack_desc>{desc}); }

/// The name in it lives as long as the weights.
inline marlin_layer_info info(const weights& of) {
  auto result = make<marlin_layer_info>();
  call(marlin_weights_info, of.get(), &result);
  return result;
}

// Work on a stream; without one it is done on return.

/// Rows first_row on, as many as `out` has; expert e's from e N on.
inline void unpack(const stream& on, const weights& from, const marlin_matrix& out, std::int64_t first_row = 0) {
  call(marlin_weights_unpack, on.get(), from.get(), nullptr, first_row, &out);
}
inline void unpack(const weights& from, const marlin_matrix& out, std::int64_t first_row = 0) {
  unpack(stream(), from, out, first_row);
}
/// The rows of these numbers, [T, 1] I32.
inline void unpack_rows(const stream& on, const weights& from, const marlin_matrix& ids, const marlin_matrix& out) {
  call(marlin_weights_unpack, on.get(), from.get(), &ids, std::int64_t{0}, &out);
}
inline void unpack_rows(const weights& from, const marlin_matrix& ids, const marlin_matrix& out) {
  unpack_rows(stream(), from, ids, out);
}

inline void gemm(const stream& on, const marlin_gemm_desc& desc) { call(marlin_gemm, on.get(), &desc); }
inline void gemm(const marlin_gemm_desc& desc) { gemm(stream(), desc); }
/// Independent products in one submission.
inline void gemm_many(const stream& on, const std::vector<marlin_gemm_desc>& descs) {
  call(marlin_gemm_many, on.get(), addresses(descs).data(), static_cast<std::uint32_t>(descs.size()));
}
inline void gemm_many(const std::vector<marlin_gemm_desc>& descs) { gemm_many(stream(), descs); }
/// Compiles and reserves for these products with M up to max_m. Returns what a host's own scratch must hold, in bytes.
inline std::uint64_t prepare(const stream& on, const std::vector<marlin_gemm_desc>& descs, std::int64_t max_m) {
  std::uint64_t scratch_bytes = 0;
  call(marlin_prepare, on.get(), addresses(descs).data(), static_cast<std::uint32_t>(descs.size()), max_m, &scratch_bytes);
  return scratch_bytes;
}
inline std::uint64_t prepare(const std::vector<marlin_gemm_desc>& descs, std::int64_t max_m) {
  return prepare(stream(), descs, max_m);
}

/// Which kernel would run, which tiles, why.
inline std::string explain(const marlin_gemm_desc& desc) {
  std::size_t needed = 0;
  call(marlin_explain, &desc, nullptr, std::size_t{0}, &needed);
  std::string text(needed, '\0');
  call(marlin_explain, &desc, text.data(), text.size(), &needed);
  text.resize(needed - 1);
  return text;
}

#endif  // __cpp_exceptions

}  // namespace metal_marlin

#endif  // METAL_MARLIN_METAL_MARLIN_HPP_
