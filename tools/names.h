// The names that people type and read for the constants of the ABI.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

std::string format_name(marlin_format format);     ///< "int4", ...; "float" for NONE
std::string compute_name(marlin_compute compute);  ///< "default", "int8", "fp8", "w16"
std::string dtype_name(marlin_dtype dtype);        ///< "f32", ...
std::string layout_name(marlin_layout layout);     ///< "gptq-v1", ...
std::string backend_name(marlin_backend backend);  ///< "cpu", ...
/// "int4 g128"; "int4 row" if one group is a whole row; "int8" if the layer has no group.
std::string format_and_group(const marlin_layer_info& info);
/// "4096 x 14336" (N x K), "8 x 4096 x 14336" of experts.
std::string shape_text(const marlin_layer_info& info);
/// The names of marlin_layer_info::flags: {"zeros", "act-order"}, ...
std::vector<std::string> flag_list(uint32_t flags);
/// The same as "zeros, act-order".
std::string flag_names(uint32_t flags);

/// Whether somebody who typed this may mean a name: in any case.
bool is_name(std::string_view typed, std::string_view name);
std::optional<marlin_backend> parse_backend(std::string_view name);  ///< auto, cpu, metal, cuda
std::optional<marlin_format> parse_format(std::string_view name);
std::optional<marlin_scheme> parse_scheme(
    std::string_view name);  ///< auto, compressed-tensors, gptq, marlin-24, gguf, mlx
std::optional<marlin_compute> parse_compute(std::string_view name);
std::optional<marlin_dtype> parse_activation_dtype(std::string_view name);  ///< f32, f16, bf16

/// The types of GGUF's blocks that can be written, as people write them: "q4_k".
std::vector<std::string_view> block_types();
/// The type of blocks that holds weights of a format with these flags of marlin_layer_info; "" if
/// none of block_types() does.
std::string block_type_of(marlin_format format, uint32_t flags);

/// A format, or a type of GGUF's blocks and the flags of marlin_pack_desc that go with it.
struct WeightType {
  marlin_format format = MARLIN_FORMAT_NONE;
  const char* block = nullptr;  ///< ggml's name
  uint32_t flags = 0;
};
std::optional<WeightType> parse_weight_type(std::string_view name);
std::string weight_type_name(const WeightType& type);  ///< "int4", "q4_k"
/// All that parse_weight_type() takes, for people.
std::string weight_types();

/// The formats that bench and verify take where none is named.
std::span<const marlin_format> measured_formats();
/// The formats that `quantize --format` takes, beside types of blocks.
std::span<const marlin_format> quantize_formats();
/// Whether 2:4 sparse weights of a format have a packed form of their own.
bool has_sparse_form(marlin_format format);
/// Bits of a code.
int code_bits(marlin_format format);
/// The group of a format if none is requested.
uint32_t default_group(marlin_format format);

/// "123", "4.1 thousand", "135 million".
std::string count_text(uint64_t count);
/// "25.6 MB", "512 kB": powers of ten, as for bandwidth.
std::string bytes_text(double bytes);
/// "1.23 us", "45.6 ms".
std::string seconds_text(double seconds);

}  // namespace metal_marlin::tools
