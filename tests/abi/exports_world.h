// Arguments of every kind that an export takes, good and bad.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <map>
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
  // of a callback
  done,
  user,
};
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

/// A good value for an argument, and bad ones.
struct Choice {
  Value good;
  std::vector<Bad> bad;
};
using Choices = std::map<Arg, Choice>;

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
    convert_.value.format = MARLIN_FORMAT_MXFP4;
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
  std::vector<Bad> bad(Arg arg) { return choice(arg).bad; }

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
  /// A handle that is used, or destroyed, where another kind of handle is a mistake.
  Choice handle(const void* good, const void* other_kind, bool or_null = false, marlin_status expected = MARLIN_E_ARGUMENT) {
    Choice choice = {pointer(good),
                     {{"another kind", pointer(other_kind), expected},
                      {"zeros", pointer(zeros_), expected},
                      {"an odd address", pointer(zeros_ + 3), expected}}};
    if (!or_null) choice.bad.push_back({"NULL", pointer(nullptr), expected});
    return choice;
  }
  Choice gone(const void* good, const void* other_kind) { return handle(good, other_kind, false, MARLIN_OK); }
  template <class T>
  static Choice out(T* good) {
    return {pointer(good), {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT}}};
  }
  template <class T, int kOf = 0>  // of several of one type each has a number
  static Choice tailed(const Tailed<T>& good, marlin_status when_null, marlin_status when_tailed = MARLIN_E_UNSUPPORTED) {
    static Tailed<T> empty, short_one, with_tail, zero_tail;
    empty = short_one = with_tail = zero_tail = good;
    empty.value.struct_size = 0;
    short_one.value.struct_size = metal_marlin::api::kVersion1Size<T> - 1;
    with_tail.value.struct_size = zero_tail.value.struct_size = sizeof(T) + 8;
    with_tail.tail = uint64_t{1} << 63;
    return {pointer(&good),
            {{"NULL", pointer(nullptr), when_null},
             {"struct_size 0", pointer(&empty), MARLIN_E_STRUCT_SIZE},
             {"a short struct", pointer(&short_one), MARLIN_E_STRUCT_SIZE},
             {"a tail of zeros", pointer(&zero_tail), MARLIN_OK},
             {"a tail", pointer(&with_tail), when_tailed}}};
  }
  Choices handles();
  Choices structs();
  Choices operands();
  Choices integers();
  Choice choice(Arg arg) {
    for (const auto group : {&World::handles, &World::structs, &World::operands, &World::integers}) {
      Choices choices = (this->*group)();
      if (const auto found = choices.find(arg); found != choices.end()) return found->second;
    }
    ADD_FAILURE() << "an argument without values: " << static_cast<int>(arg);
    return {};
  }

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
  Tailed<marlin_save_desc> save_ = {{sizeof(marlin_save_desc), MARLIN_SAVE_OVERWRITE, nullptr, 0, 0, 0, 0, nullptr, nullptr}};
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

inline Value World::good(Arg arg) {
  if (arg >= Arg::context_out && arg <= Arg::checkpoint_out) destroy(std::exchange(created_, {}));  // by the call before
  if (arg == Arg::context_gone) gone_.context = context_.release();
  if (arg == Arg::stream_gone) gone_.stream = stream_.release();
  if (arg == Arg::buffer_gone) gone_.buffer = buffer_.release();
  if (arg == Arg::weights_gone) gone_.weights = weights_.release();
  if (arg == Arg::checkpoint_gone) gone_.checkpoint = file_.release();
  if (arg == Arg::next_text) next_text_ = nullptr;
  return choice(arg).good;
}

inline Choices World::handles() {
  const void *const stream = stream_.get(), *const weights = weights_.get();
  return {{Arg::context, handle(context_.get(), stream)},
          {Arg::stream, handle(stream, weights)},
          {Arg::stream_or_null, handle(stream, weights, true)},
          {Arg::buffer, handle(buffer_.get(), stream)},
          {Arg::weights, handle(weights, stream)},
          {Arg::checkpoint, handle(file_.get(), stream)},
          {Arg::context_gone, gone(gone_.context, stream)},
          {Arg::stream_gone, gone(gone_.stream, weights)},
          {Arg::buffer_gone, gone(gone_.buffer, stream)},
          {Arg::weights_gone, gone(gone_.weights, stream)},
          {Arg::checkpoint_gone, gone(gone_.checkpoint, stream)},
          {Arg::context_out, out(&created_.context)},
          {Arg::stream_out, out(&created_.stream)},
          {Arg::buffer_out, out(&created_.buffer)},
          {Arg::weights_out, out(&created_.weights)},
          {Arg::checkpoint_out, out(&created_.checkpoint)}};
}

inline Choices World::structs() {
  return {{Arg::context_desc, tailed(context_desc_, MARLIN_OK)},
          {Arg::stream_desc, tailed(stream_desc_, MARLIN_OK)},
          {Arg::open_desc, tailed(open_, MARLIN_OK)},
          {Arg::save_desc, tailed(save_, MARLIN_OK)},
          {Arg::gemm_desc, tailed(gemm_, MARLIN_E_ARGUMENT)},
          {Arg::load_desc, tailed(load_, MARLIN_E_ARGUMENT)},
          {Arg::convert_desc, tailed(convert_, MARLIN_E_ARGUMENT)},
          {Arg::value_array, tailed<marlin_value, 1>(array_, MARLIN_E_ARGUMENT)},
          {Arg::device_info, tailed(device_, MARLIN_E_ARGUMENT, MARLIN_OK)},
          {Arg::layer_info, tailed(info_, MARLIN_E_ARGUMENT, MARLIN_OK)},
          {Arg::value_out, tailed(value_, MARLIN_E_ARGUMENT, MARLIN_OK)},
          {Arg::err, tailed(err_, MARLIN_OK, MARLIN_OK)},
          {Arg::matrix_out, out(&tensor_matrix_)},
          {Arg::next_text, out(&next_text_)},
          {Arg::next_bytes, out(&next_bytes_)},
          {Arg::text, out(text_)},
          {Arg::needed, {pointer(&needed_), {{"NULL", pointer(nullptr), MARLIN_OK}}}},
          {Arg::scratch_bytes, {pointer(&scratch_bytes_), {{"NULL", pointer(nullptr), MARLIN_OK}}}}};
}

inline Choices World::operands() {
  const Bad null = {"NULL", pointer(nullptr), MARLIN_E_ARGUMENT},
            nulls = {"an array of NULL", pointer(nulls_), MARLIN_E_ARGUMENT};
  return {{Arg::parts, {pointer(parts_), {null, nulls}}},
          {Arg::products, {pointer(products_), {null, nulls}}},
          {Arg::row_ids,
           {pointer(nullptr),
            {{"ids", pointer(&ids_matrix_), MARLIN_OK},
             {"negative rows", pointer(&ids_of_negative_rows_), MARLIN_E_SHAPE},
             {"no ids", pointer(&out_), MARLIN_E_ARGUMENT}}}},
          {Arg::rows_out,
           {pointer(&out_),
            {null,
             {"negative rows", pointer(&out_of_negative_rows_), MARLIN_E_SHAPE},
             {"no floats", pointer(&ids_matrix_), MARLIN_E_ARGUMENT}}}},
          {Arg::out_path,
           {pointer(out_path_.c_str()),
            {null,
             {"an empty path", pointer(""), MARLIN_E_FILE},
             {"a file", pointer("/dev/null"), MARLIN_E_FILE},
             {"in no folder", pointer("/nonexistent/folder/model"), MARLIN_E_FILE}}}},
          {Arg::path,
           {pointer(path_.c_str()),
            {null,
             {"an empty path", pointer(""), MARLIN_E_FILE},
             {"no such file", pointer("/nonexistent/model.gguf"), MARLIN_E_FILE}}}},
          {Arg::name,
           {pointer(tensor_.c_str()),
            {null,
             {"an empty name", pointer(""), MARLIN_E_NOT_FOUND},
             {"no such tensor", pointer("model.layers.1"), MARLIN_E_NOT_FOUND}}}},
          {Arg::key,
           {pointer("quantization_config.quant_method"),
            {null,
             {"an empty key", pointer(""), MARLIN_E_NOT_FOUND},
             {"an object", pointer("quantization_config"), MARLIN_E_NOT_FOUND}}}}};
}

inline Choices World::integers() {
  const Value most = u64(~uint64_t{0});
  const std::vector<Bad> anything = {{"all bits", u32(~0u), kAny}, {"1", u32(1), kAny}, {"the smallest", i32(INT32_MIN), kAny}};
  void (*const callback)(void*, marlin_status) = [](void*, marlin_status) {};
  return {{Arg::done, {pointer(callback), {{"NULL", pointer(nullptr), MARLIN_E_ARGUMENT}}}},
          {Arg::user, {pointer(nullptr), {{"all bits", most, MARLIN_OK}}}},
          {Arg::status, {i32(MARLIN_E_SHAPE), anything}},
          {Arg::major, {u32(0), anything}},
          {Arg::part_count, {u32(1), {{"0", u32(0), MARLIN_E_ARGUMENT}}}},
          {Arg::expert_count,
           {u32(1), {{"0", u32(0), MARLIN_OK}, {"2", u32(2), MARLIN_E_SHAPE}, {"all bits", u32(~0u), MARLIN_E_SHAPE}}}},
          {Arg::product_count, {u32(1), {{"0", u32(0), MARLIN_OK}}}},
          {Arg::first_row,
           {i64(1),
            {{"-1", i64(-1), MARLIN_E_ARGUMENT},
             {"one too far", i64(3), MARLIN_E_ARGUMENT},
             {"the smallest", i64(INT64_MIN), MARLIN_E_ARGUMENT},
             {"the largest", i64(INT64_MAX), MARLIN_E_ARGUMENT}}}},
          {Arg::index, {u32(0), {{"all bits", u32(~0u), MARLIN_E_NOT_FOUND}, {"1000", u32(1000), MARLIN_E_NOT_FOUND}}}},
          {Arg::layer_index, {u64(0), {{"all bits", most, MARLIN_E_NOT_FOUND}, {"1000", u64(1000), MARLIN_E_NOT_FOUND}}}},
          {Arg::bytes,
           {u64(100),
            {{"0", u64(0), MARLIN_E_ARGUMENT},
             {"all bits", most, MARLIN_E_MEMORY},
             {"2^62", u64(uint64_t{1} << 62), MARLIN_E_MEMORY}}}},
          {Arg::timeout, {u64(0), {{"for ever", most, MARLIN_OK}}}},
          {Arg::max_m,
           {i64(4),
            {{"-1", i64(-1), MARLIN_E_ARGUMENT},
             {"the smallest", i64(INT64_MIN), MARLIN_E_ARGUMENT},
             {"0", i64(0), MARLIN_OK},
             {"the largest", i64(INT64_MAX), MARLIN_E_SHAPE},
             {"2^40", i64(int64_t{1} << 40), MARLIN_OK}}}},
          {Arg::capacity, {u64(sizeof text_), {{"0", u64(0), MARLIN_OK}, {"1", u64(1), MARLIN_OK}}}}};
}

}  // namespace abi_test
