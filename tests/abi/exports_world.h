// Arguments of every kind that an export takes, good and bad.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/descriptor.h"
#include "support.h"

namespace abi_test {

enum class Arg {
  // handles that are used
  context,
  stream,
  stream_or_null,
  buffer,
  weights,
  checkpoint,
  // handles that are destroyed by the call
  context_gone,
  stream_gone,
  buffer_gone,
  weights_gone,
  checkpoint_gone,
  // where a new handle goes
  context_out,
  stream_out,
  buffer_out,
  weights_out,
  checkpoint_out,
  // descriptors and arrays of them
  context_desc,
  stream_desc,
  gemm_desc,
  load_desc,
  open_desc,
  convert_desc,
  save_desc,
  parts,
  products,
  // matrices and strings
  row_ids,
  rows_out,
  path,
  out_path,
  name,
  key,
  value_array,
  // outputs
  device_info,
  layer_info,
  matrix_out,
  value_out,
  next_text,
  next_bytes,
  text,
  needed,
  scratch_bytes,
  err,
  // numbers
  part_count,
  expert_count,
  product_count,
  first_row,
  index,
  layer_index,
  bytes,
  timeout,
  max_m,
  capacity,
  status,
  major,
};
constexpr bool is_number(Arg arg) { return arg >= Arg::part_count; }

/// One argument's bytes: a pointer or an integer of up to 8 bytes.
using Value = uint64_t;
template <class T>
Value pointer(T* p) {
  return reinterpret_cast<uintptr_t>(p);
}
inline Value pointer(std::nullptr_t) { return 0; }
inline Value u32(uint32_t v) { return v; }
inline Value i32(int32_t v) { return static_cast<uint32_t>(v); }
inline Value u64(uint64_t v) { return v; }
inline Value i64(int64_t v) { return static_cast<uint64_t>(v); }

/// A status that no function returns: the call must only come back.
constexpr marlin_status kAny = 1;

/// A questionable value for one argument, and what must come of it.
struct Bad {
  const char* what;
  Value value;
  marlin_status expected;
};

/// A descriptor or output struct with room for a tail.
template <class T>
struct Tailed {
  T value = mm::make<T>();
  uint64_t tail = 0;
};

/// Arguments of every kind, good and bad. Each call gets a world of its own, so that no call sees what another one did.
class World {
 public:
  explicit World(const marlin_context_desc& desc = mm::make<marlin_context_desc>()) : context_(desc) {
    file_ = mm::checkpoint(path_);
    layer_ = file_.layers().at(0).name;
    tensor_ = layer_ + ".weight_packed";
    load_.value.layers = &layer_name_;
    load_.value.layer_count = 1;
    layer_name_ = layer_.c_str();
    convert_.value.format = MARLIN_MXFP4;
    convert_.value.flags = MARLIN_CONVERT_OVERWRITE;
    convert_.value.layers = &layer_name_;
    convert_.value.layer_count = 1;
    array_.value.kind = MARLIN_VALUE_ARRAY;
    array_.value.element_type = MARLIN_VALUE_STRING;
    array_.value.data = one_string_;
    array_.value.bytes = sizeof one_string_;
    part_.value = pack_desc(values_, 4, 64);
    gemm_.value = product_.desc;
    gemm_.value.a = operands_.matrix<float>(2, 64);
    gemm_.value.c = operands_.matrix<float>(2, 4, 512);
  }
  ~World() {
    destroy(created_);
    destroy(gone_);
    std::error_code ignored;
    std::filesystem::remove_all(out_path_, ignored);
  }
  bool created_nothing() const {
    return !created_.context && !created_.stream && !created_.buffer && !created_.weights && !created_.checkpoint;
  }
  const marlin_error& error() const { return err_.value; }
  /// The handle that a marlin_..._destroy gets is destroyed by it, not by this world.
  void destroyed(Arg arg) {
    if (arg == Arg::context_gone) gone_.context = nullptr;
    if (arg == Arg::stream_gone) gone_.stream = nullptr;
    if (arg == Arg::buffer_gone) gone_.buffer = nullptr;
    if (arg == Arg::weights_gone) gone_.weights = nullptr;
    if (arg == Arg::checkpoint_gone) gone_.checkpoint = nullptr;
  }

  Value good(Arg arg);
  /// The same number of values in every world.
  std::vector<Bad> bad(Arg arg);

 private:
  struct Handles {
    marlin_context* context;
    marlin_stream* stream;
    marlin_buffer* buffer;
    marlin_weights* weights;
    marlin_checkpoint* checkpoint;
  };
  static void destroy(const Handles& h) {
    marlin_stream_destroy(h.stream);
    marlin_buffer_destroy(h.buffer);
    marlin_weights_destroy(h.weights);
    marlin_checkpoint_destroy(h.checkpoint);
    marlin_context_destroy(h.context);
  }
  std::vector<Bad> not_a_handle(Arg arg, const void* other_kind, marlin_status expected) {
    std::vector<Bad> bads = {{"another kind", pointer(other_kind), expected},
                             {"zeros", pointer(zeros_), expected},
                             {"an odd address", pointer(zeros_ + 3), expected}};
    if (arg != Arg::stream_or_null) bads.push_back({"NULL", pointer(nullptr), expected});
    return bads;
  }
  template <class T>
  std::vector<Bad> bad_struct(const Tailed<T>& good, marlin_status when_null,
                              marlin_status when_tailed = MARLIN_E_UNSUPPORTED) {
    static Tailed<T> empty, short_one, tailed, zero_tail;
    empty = short_one = tailed = zero_tail = good;
    empty.value.struct_size = 0;
    short_one.value.struct_size = metal_marlin::api::kVersion1Size<T> - 1;
    tailed.value.struct_size = zero_tail.value.struct_size = sizeof(T) + 8;
    tailed.tail = uint64_t{1} << 63;
    return {{"NULL", pointer(nullptr), when_null},
            {"struct_size 0", pointer(&empty), MARLIN_E_STRUCT_SIZE},
            {"a short struct", pointer(&short_one), MARLIN_E_STRUCT_SIZE},
            {"a tail of zeros", pointer(&zero_tail), MARLIN_OK},
            {"a tail", pointer(&tailed), when_tailed}};
  }
  Value good_handle(Arg arg);
  static Value good_number(Arg arg);
  std::vector<Bad> bad_number(Arg arg);
  std::vector<Bad> bad_operand(Arg arg);

  const std::string path_ = std::string(MARLIN_TEST_DATA) + "/ct-mxfp4";
  const std::string out_path_ =
      (std::filesystem::temp_directory_path() / ("metal-marlin-abi-" + std::to_string(getpid()))).string();
  mm::context context_;
  mm::weights weights_ = quantized(context_, 4, 64);
  mm::stream stream_{context_};
  mm::buffer buffer_{context_, 256};
  mm::checkpoint file_;
  std::string layer_, tensor_;
  const char* layer_name_ = nullptr;
  std::vector<float> values_ = numbers(4 * 64, 9);
  Product product_{weights_, 2};
  Tailed<marlin_gemm_desc> gemm_;
  Tailed<marlin_pack_desc> part_;
  Tailed<marlin_load_desc> load_;
  Tailed<marlin_context_desc> context_desc_;
  Tailed<marlin_stream_desc> stream_desc_;
  Tailed<marlin_open_desc> open_;
  Tailed<marlin_convert_desc> convert_;
  Tailed<marlin_save_desc> save_ = {{sizeof(marlin_save_desc), MARLIN_SAVE_OVERWRITE, nullptr, 0, 0, 0, 0}};
  Tailed<marlin_device_info> device_;
  Tailed<marlin_layer_info> info_;
  Tailed<marlin_value> value_, array_;
  const char one_string_[10] = {2, 0, 0, 0, 0, 0, 0, 0, 'h', 'i'};
  const char* next_text_ = nullptr;
  uint64_t next_bytes_ = 0;
  Tailed<marlin_error> err_;
  const void *products_[1] = {&gemm_}, *parts_[1] = {&part_}, *nulls_[1] = {nullptr};
  mm::buffer operands_{context_, 2048};  // a GPU wants no memory of the host's on a stream
  marlin_matrix ids_matrix_ = operands_.matrix<int32_t>(2, 1, 544),
                ids_of_negative_rows_ = operands_.matrix<int32_t>(-2, 1, 544);
  marlin_matrix out_ = operands_.matrix<float>(2, 64, 1024), out_of_negative_rows_ = operands_.matrix<float>(-2, 64, 1024);
  marlin_matrix tensor_matrix_ = {};
  char text_[64] = {};
  size_t needed_ = 0;
  uint64_t scratch_bytes_ = 0;
  Handles created_ = {}, gone_ = {};
  alignas(8) unsigned char zeros_[512] = {};
};

inline Value World::good_handle(Arg arg) {
  if (arg >= Arg::context_out && arg <= Arg::checkpoint_out) destroy(std::exchange(created_, {}));  // by the call before
  switch (arg) {
    case Arg::context:
      return pointer(context_.get());
    case Arg::stream:
    case Arg::stream_or_null:
      return pointer(stream_.get());
    case Arg::buffer:
      return pointer(buffer_.get());
    case Arg::weights:
      return pointer(weights_.get());
    case Arg::checkpoint:
      return pointer(file_.get());
    case Arg::context_gone:
      return pointer(gone_.context = context_.release());
    case Arg::stream_gone:
      return pointer(gone_.stream = stream_.release());
    case Arg::buffer_gone:
      return pointer(gone_.buffer = buffer_.release());
    case Arg::weights_gone:
      return pointer(gone_.weights = weights_.release());
    case Arg::checkpoint_gone:
      return pointer(gone_.checkpoint = file_.release());
    case Arg::context_out:
      return pointer(&created_.context);
    case Arg::stream_out:
      return pointer(&created_.stream);
    case Arg::buffer_out:
      return pointer(&created_.buffer);
    case Arg::weights_out:
      return pointer(&created_.weights);
    default:
      return pointer(&created_.checkpoint);
  }
}

inline Value World::good_number(Arg arg) {
  switch (arg) {
    case Arg::part_count:
    case Arg::expert_count:
    case Arg::product_count:
      return u32(1);
    case Arg::index:
    case Arg::major:
      return u32(0);
    case Arg::first_row:
      return i64(1);
    case Arg::layer_index:
      return u64(0);
    case Arg::bytes:
      return u64(100);
    case Arg::timeout:
      return u64(0);
    case Arg::max_m:
      return i64(4);
    case Arg::capacity:
      return u64(sizeof text_);
    default:
      return i32(MARLIN_E_SHAPE);
  }
}

inline Value World::good(Arg arg) {
  if (arg <= Arg::checkpoint_out) return good_handle(arg);
  if (is_number(arg)) return good_number(arg);
  switch (arg) {
    case Arg::context_desc:
      return pointer(&context_desc_);
    case Arg::stream_desc:
      return pointer(&stream_desc_);
    case Arg::gemm_desc:
      return pointer(&gemm_);
    case Arg::load_desc:
      return pointer(&load_);
    case Arg::open_desc:
      return pointer(&open_);
    case Arg::convert_desc:
      return pointer(&convert_);
    case Arg::save_desc:
      return pointer(&save_);
    case Arg::parts:
      return pointer(parts_);
    case Arg::products:
      return pointer(products_);
    case Arg::device_info:
      return pointer(&device_);
    case Arg::layer_info:
      return pointer(&info_);
    case Arg::matrix_out:
      return pointer(&tensor_matrix_);
    case Arg::row_ids:
      return pointer(nullptr);
    case Arg::rows_out:
      return pointer(&out_);
    case Arg::path:
      return pointer(path_.c_str());
    case Arg::out_path:
      return pointer(out_path_.c_str());
    case Arg::name:
      return pointer(tensor_.c_str());
    case Arg::key:
      return pointer("quantization_config.quant_method");
    case Arg::value_out:
      return pointer(&value_);
    case Arg::value_array:
      return pointer(&array_);
    case Arg::next_text:
      return pointer(&(next_text_ = nullptr));
    case Arg::next_bytes:
      return pointer(&next_bytes_);
    case Arg::text:
      return pointer(text_);
    case Arg::needed:
      return pointer(&needed_);
    case Arg::scratch_bytes:
      return pointer(&scratch_bytes_);
    default:
      return pointer(&err_);
  }
}

inline std::vector<Bad> World::bad(Arg arg) {
  switch (arg) {
    case Arg::context:
    case Arg::buffer:
    case Arg::weights:
    case Arg::checkpoint:
      return not_a_handle(arg, stream_.get(), MARLIN_E_ARGUMENT);
    case Arg::stream:
    case Arg::stream_or_null:
      return not_a_handle(arg, weights_.get(), MARLIN_E_ARGUMENT);
    case Arg::context_gone:
    case Arg::buffer_gone:
    case Arg::weights_gone:
    case Arg::checkpoint_gone:
      return not_a_handle(arg, stream_.get(), MARLIN_OK);
    case Arg::stream_gone:
      return not_a_handle(arg, weights_.get(), MARLIN_OK);
    case Arg::context_desc:
      return bad_struct(context_desc_, MARLIN_OK);
    case Arg::stream_desc:
      return bad_struct(stream_desc_, MARLIN_OK);
    case Arg::open_desc:
      return bad_struct(open_, MARLIN_OK);
    case Arg::gemm_desc:
      return bad_struct(gemm_, MARLIN_E_ARGUMENT);
    case Arg::load_desc:
      return bad_struct(load_, MARLIN_E_ARGUMENT);
    case Arg::convert_desc:
      return bad_struct(convert_, MARLIN_E_ARGUMENT);
    case Arg::save_desc:
      return bad_struct(save_, MARLIN_OK);
    case Arg::device_info:
      return bad_struct(device_, MARLIN_E_ARGUMENT, MARLIN_OK);
    case Arg::layer_info:
      return bad_struct(info_, MARLIN_E_ARGUMENT, MARLIN_OK);
    case Arg::value_out:
      return bad_struct(value_, MARLIN_E_ARGUMENT, MARLIN_OK);
    case Arg::value_array:
      return bad_struct(array_, MARLIN_E_ARGUMENT);
    case Arg::err:
      return bad_struct(err_, MARLIN_OK, MARLIN_OK);
    case Arg::row_ids:
    case Arg::rows_out:
    case Arg::parts:
    case Arg::products:
    case Arg::path:
    case Arg::out_path:
    case Arg::name:
    case Arg::key:
    case Arg::needed:
    case Arg::scratch_bytes:
      return bad_operand(arg);
    case Arg::context_out:
    case Arg::stream_out:
    case Arg::buffer_out:
    case Arg::weights_out:
    case Arg::checkpoint_out:
    case Arg::matrix_out:
    case Arg::next_text:
    case Arg::next_bytes:
    case Arg::text:
      return {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT}};
    default:
      return bad_number(arg);
  }
}

inline std::vector<Bad> World::bad_operand(Arg arg) {
  switch (arg) {
    case Arg::row_ids:
      return {{"ids", pointer(&ids_matrix_), MARLIN_OK},
              {"negative rows", pointer(&ids_of_negative_rows_), MARLIN_E_SHAPE},
              {"no ids", pointer(&out_), MARLIN_E_ARGUMENT}};
    case Arg::rows_out:
      return {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT},
              {"negative rows", pointer(&out_of_negative_rows_), MARLIN_E_SHAPE},
              {"no floats", pointer(&ids_matrix_), MARLIN_E_ARGUMENT}};
    case Arg::parts:
    case Arg::products:
      return {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT}, {"an array of NULL", pointer(nulls_), MARLIN_E_ARGUMENT}};
    case Arg::out_path:
      return {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT},
              {"an empty path", pointer(""), MARLIN_E_FILE},
              {"a file", pointer("/dev/null"), MARLIN_E_FILE},
              {"in no folder", pointer("/nonexistent/folder/model"), MARLIN_E_FILE}};
    case Arg::path:
      return {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT},
              {"an empty path", pointer(""), MARLIN_E_FILE},
              {"no such file", pointer("/nonexistent/model.gguf"), MARLIN_E_FILE}};
    case Arg::name:
      return {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT},
              {"an empty name", pointer(""), MARLIN_E_NOT_FOUND},
              {"no such tensor", pointer("model.layers.1"), MARLIN_E_NOT_FOUND}};
    case Arg::key:
      return {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT},
              {"an empty key", pointer(""), MARLIN_E_NOT_FOUND},
              {"an object", pointer("quantization_config"), MARLIN_E_NOT_FOUND}};
    default:
      return {{"NULL", pointer(nullptr), MARLIN_OK}};
  }
}

inline std::vector<Bad> World::bad_number(Arg arg) {
  switch (arg) {
    case Arg::part_count:
      return {{"0", u32(0), MARLIN_E_ARGUMENT}};
    case Arg::expert_count:
      return {{"0", u32(0), MARLIN_OK}, {"2", u32(2), MARLIN_E_SHAPE}, {"all bits", u32(~0u), MARLIN_E_SHAPE}};
    case Arg::product_count:
      return {{"0", u32(0), MARLIN_OK}};
    case Arg::first_row:
      return {{"-1", i64(-1), MARLIN_E_ARGUMENT},
              {"one too far", i64(3), MARLIN_E_ARGUMENT},
              {"the smallest", i64(INT64_MIN), MARLIN_E_ARGUMENT},
              {"the largest", i64(INT64_MAX), MARLIN_E_ARGUMENT}};
    case Arg::index:
      return {{"all bits", u32(~0u), MARLIN_E_NOT_FOUND}, {"1000", u32(1000), MARLIN_E_NOT_FOUND}};
    case Arg::layer_index:
      return {{"all bits", u64(~uint64_t{0}), MARLIN_E_NOT_FOUND}, {"1000", u64(1000), MARLIN_E_NOT_FOUND}};
    case Arg::bytes:
      return {{"0", u64(0), MARLIN_E_ARGUMENT},
              {"all bits", u64(~uint64_t{0}), MARLIN_E_MEMORY},
              {"2^62", u64(uint64_t{1} << 62), MARLIN_E_MEMORY}};
    case Arg::timeout:
      return {{"for ever", u64(~uint64_t{0}), MARLIN_OK}};
    case Arg::max_m:
      return {{"-1", i64(-1), MARLIN_E_ARGUMENT},
              {"the smallest", i64(INT64_MIN), MARLIN_E_ARGUMENT},
              {"0", i64(0), MARLIN_OK},
              {"the largest", i64(INT64_MAX), MARLIN_E_SHAPE},
              {"2^40", i64(int64_t{1} << 40), MARLIN_OK}};
    case Arg::capacity:
      return {{"0", u64(0), MARLIN_OK}, {"1", u64(1), MARLIN_OK}};
    default:
      return {{"all bits", u32(~0u), kAny}, {"1", u32(1), kAny}, {"the smallest", i32(INT32_MIN), kAny}};
  }
}

}  // namespace abi_test
