// Every matrix of a file is accounted for: it belongs to one layer, which is read bit for bit or says why not. Files are those
// of tests/data and files drawn by chance: kinds of codes, one matrix or stacks in both orders, names, places and shapes of
// scales, and where the config says what.
#include "base/bits.h"
#include "campaigns.h"
#include "checkpoint_files.h"
#include "checkpoints/convert/quantize_layer.h"
#include "checkpoints/tensor_table.h"
#include "checkpoints/unread.h"
#include "formats/codecs.h"
#include "must.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {
namespace account {

/// "": each tensor belongs to one layer, whose bytes are those of its parts, or is no matrix. Else what is wrong.
std::string check(const Checkpoint& checkpoint) {
  const TensorTable& tensors = checkpoint.tensors();
  std::vector<std::string> owner(tensors.size());
  for (size_t i = 0; i < checkpoint.layer_count(); ++i) {
    uint64_t bytes = 0;
    const Layer layer = checkpoint.layer(i);
    for (const TensorView& part : checkpoint.parts(i)) {
      const auto at = tensors.find(part.name);
      if (!at) return "a part of " + layer.name + " is no tensor: " + std::string(part.name);
      if (!owner[*at].empty()) return std::string(part.name) + " belongs to " + owner[*at] + " and " + layer.name;
      owner[*at] = layer.name;
      bytes += tensors.range(*at).bytes;
    }
    if (bytes != layer.bytes)
      return layer.name + " says " + std::to_string(layer.bytes) + " bytes, its parts have " + std::to_string(bytes);
  }
  for (size_t t = 0; t < tensors.size(); ++t)
    if (owner[t].empty() && is_matrix_or_codes(tensors, t)) return "silent: " + std::string(tensors.name(t));
  return "";
}

TEST(Account, OfTheTestData) {
  size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MARLIN_TEST_DATA)) {
    if (!entry.is_directory()) continue;
    const auto opened = must(Checkpoint::open(entry.path().string(), MARLIN_LAYOUT_AUTO));
    EXPECT_EQ(check(*opened), "") << entry.path();
    ++folders;
  }
  EXPECT_GT(folders, 50u);
}

using Random = std::mt19937;
size_t below(Random& random, size_t n) { return random() % n; }
template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[below(random, values.size())];
}

/// A stack of matrices [E][N][K], their true values, and how they lie in a file.
struct Drawn {
  int64_t e = 0, n = 0, k = 0;
  bool transposed = false;
  std::vector<float> values;
  size_t at(int64_t i, int64_t r, int64_t c) const { return static_cast<size_t>((i * n + r) * k + c); }
};

std::string shape(const Drawn& d, int64_t rows, int64_t columns) {
  if (d.transposed) std::swap(rows, columns);
  return (d.e > 0 ? std::to_string(d.e) + "," : "") + std::to_string(rows) + "," + std::to_string(columns);
}
/// Elements in the order of the file, for rows x columns of something.
void for_each(const Drawn& d, int64_t rows, int64_t columns, const std::function<void(int64_t, int64_t, int64_t)>& visit) {
  for (int64_t i = 0; i < std::max<int64_t>(d.e, 1); ++i)
    for (int64_t a = 0; a < (d.transposed ? columns : rows); ++a)
      for (int64_t b = 0; b < (d.transposed ? rows : columns); ++b) d.transposed ? visit(i, b, a) : visit(i, a, b);
}

/// Names of the parts of one matrix.
struct Names {
  std::string values, scale, tensor_scale, zero, shape;
};
Names names_of(Random& random, const std::string& base, bool bare, bool packed) {
  const std::string joint = bare ? "_" : ".";
  Names names{base + (bare ? "" : ".weight"), "", base + joint + "weight_scale_2", base + joint + "weight_zero_point",
              base + joint + "weight_shape"};
  if (packed) names.values = base + joint + "weight_packed";
  names.scale = base + joint +
                (bare ? one_of(random, {"scale", "scale_inv", "weight_scale", "weight_scale_inv"})
                      : one_of(random, {"weight_scale", "weight_scale_inv", "scale", "scale_weight"}));
  if (packed) names.scale = base + joint + "weight_scale", names.tensor_scale = base + joint + "weight_global_scale";
  return names;
}

float power_of_two(Random& random) { return std::ldexp(1.0f, static_cast<int>(below(random, 9)) - 4); }

void floats(Random& random, Drawn& d, const Names& names, std::vector<TestTensor>& out) {
  const std::string type = one_of(random, {"F32", "F16", "BF16"});
  std::string data;
  for_each(d, d.n, d.k, [&](int64_t i, int64_t r, int64_t c) {
    const float value = power_of_two(random) * static_cast<float>(1 + below(random, 3));
    d.values[d.at(i, r, c)] = value;
    if (type == "F32") append(data, value);
    if (type == "F16") append(data, f32_to_f16(value));
    if (type == "BF16") append(data, f32_to_bf16(value));
  });
  out.push_back({names.values, type, shape(d, d.n, d.k), data});
}

/// Codes of a byte, FP8 or INT8, with scales for `rows` x `columns` elements.
void bytes(Random& random, bool fp8, int64_t rows, int64_t columns, Drawn& d, const Names& names,
           std::vector<TestTensor>& out) {
  std::string data, scales;
  const int64_t above = ceil_div(d.n, rows), across = ceil_div(d.k, columns);
  std::vector<float> scale(static_cast<size_t>(std::max<int64_t>(d.e, 1) * above * across));
  const auto scale_at = [&](int64_t i, int64_t r, int64_t c) -> float& {
    return scale[static_cast<size_t>((i * above + r) * across + c)];
  };
  for_each(d, above, across,
           [&](int64_t i, int64_t r, int64_t c) { append(scales, scale_at(i, r, c) = power_of_two(random)); });
  for_each(d, d.n, d.k, [&](int64_t i, int64_t r, int64_t c) {
    const auto code = static_cast<uint8_t>(fp8 ? random() % 0x7e : random());
    const float value = fp8 ? e4m3_to_f32(code) : static_cast<float>(static_cast<int8_t>(code));
    append(data, code);
    d.values[d.at(i, r, c)] = value * scale_at(i, r / rows, c / columns);
  });
  out.push_back({names.values, fp8 ? "F8_E4M3" : "I8", shape(d, d.n, d.k), data});
  const bool scalar = above == 1 && across == 1 && d.e == 0;
  out.push_back({names.scale, "F32", scalar ? "" : shape(d, above, across), scales});
}

/// Nibbles along K with a scale of a byte for each group: MXFP4 or NVFP4.
void nibbles(Random& random, bool mxfp4, bool divides, Drawn& d, const Names& names, std::vector<TestTensor>& out) {
  const int64_t group = mxfp4 ? 32 : 16;
  std::string data, scales, tensor;
  const float factor = mxfp4 ? 1 : 0.5f;
  for (int64_t i = 0; i < std::max<int64_t>(d.e, 1); ++i) {
    if (!mxfp4) append(tensor, divides ? 1 / factor : factor);
    for (int64_t r = 0; r < d.n; ++r) {
      for (int64_t c = 0; c < d.k; c += group) {
        const auto scale = static_cast<uint8_t>(mxfp4 ? 120 + below(random, 12) : 0x30 + below(random, 16));
        append(scales, scale);
        const float s = (mxfp4 ? std::ldexp(1.0f, scale - 127) : e4m3_to_f32(scale)) * factor;
        for (int64_t j = 0; j < group; j += 2) {
          const auto byte = static_cast<uint8_t>(random());
          append(data, byte);
          d.values[d.at(i, r, c + j)] = kE2m1[byte & 15] * s;
          d.values[d.at(i, r, c + j + 1)] = kE2m1[byte >> 4] * s;
        }
      }
    }
  }
  out.push_back({names.values, "U8", shape(d, d.n, d.k / 2), data});
  out.push_back({names.scale, mxfp4 ? one_of(random, {"U8", "F8_E8M0"}) : "F8_E4M3", shape(d, d.n, d.k / group), scales});
  if (!mxfp4) out.push_back({names.tensor_scale, "F32", d.e > 0 ? std::to_string(d.e) : "", tensor});
}

/// compressed-tensors, 4 bits in groups of 32.
void words(Random& random, Drawn& d, const Names& names, std::vector<TestTensor>& out) {
  std::string data, scales;
  for (int64_t i = 0; i < std::max<int64_t>(d.e, 1); ++i) {
    for (int64_t r = 0; r < d.n; ++r) {
      for (int64_t c = 0; c < d.k; c += 32) {
        const float s = power_of_two(random);
        append(scales, f32_to_bf16(s));
        for (int64_t j = 0; j < 32; j += 8) {
          const auto word = static_cast<uint32_t>(random());
          append(data, word);
          for (int64_t b = 0; b < 8; ++b)
            d.values[d.at(i, r, c + j + b)] = static_cast<float>(static_cast<int>(word >> 4 * b & 15) - 8) * s;
        }
      }
    }
  }
  out.push_back({names.values, "I32", shape(d, d.n, d.k / 8), data});
  out.push_back({names.scale, "BF16", shape(d, d.n, d.k / 32), scales});
  out.push_back({names.shape, "I64", "2", bytes_of<int64_t>({d.n, d.k})});
}

/// GPTQ v2 in groups of 32 with zeros of any kind: words of a column.
void gptq(Random& random, Drawn& d, const std::string& base, const std::string& joint, std::vector<TestTensor>& out) {
  const int64_t experts = std::max<int64_t>(d.e, 1);
  std::vector<uint32_t> codes(static_cast<size_t>(experts * d.k / 8 * d.n)),
      zeros(static_cast<size_t>(experts * d.k / 32 * d.n / 8));
  for (uint32_t& word : codes) word = static_cast<uint32_t>(random());
  for (uint32_t& word : zeros) word = static_cast<uint32_t>(random());
  std::vector<float> scales;
  std::string scale_bytes;
  for (int64_t i = 0; i < experts * d.k / 32 * d.n; ++i)
    append(scale_bytes, f32_to_f16(scales.emplace_back(power_of_two(random))));
  for_each(d, d.n, d.k, [&](int64_t i, int64_t r, int64_t c) {
    const int64_t group = (i * d.k + c) / 32;
    const uint32_t code = codes[static_cast<size_t>((i * d.k + c) / 8 * d.n + r)] >> c % 8 * 4 & 15,
                   zero = zeros[static_cast<size_t>(group * d.n / 8 + r / 8)] >> r % 8 * 4 & 15;
    d.values[d.at(i, r, c)] =
        static_cast<float>(static_cast<int>(code) - static_cast<int>(zero)) * scales[static_cast<size_t>(group * d.n + r)];
  });
  const auto bytes = [](const std::vector<uint32_t>& words) {
    return std::string(reinterpret_cast<const char*>(words.data()), 4 * words.size());
  };
  out.push_back({base + joint + "qweight", "I32", shape(d, d.k / 8, d.n), bytes(codes)});
  out.push_back({base + joint + "qzeros", "I32", shape(d, d.k / 32, d.n / 8), bytes(zeros)});
  out.push_back({base + joint + "scales", "F16", shape(d, d.k / 32, d.n), scale_bytes});
}

/// bitsandbytes' NF4 in blocks of 64 of the flattened matrix or stack.
void nf4(Random& random, Drawn& d, const std::string& values, std::vector<TestTensor>& out) {
  std::string data, scales, map;
  for (const float value : kNf4) append(map, value);
  for (size_t i = 0; i < d.values.size(); i += 64) {
    const float scale = power_of_two(random);
    append(scales, scale);
    for (size_t j = i; j < i + 64; j += 2) {
      const auto byte = static_cast<uint8_t>(random());
      append(data, byte);
      d.values[j] = kNf4[byte >> 4] * scale;
      d.values[j + 1] = kNf4[byte & 15] * scale;
    }
  }
  const std::string dims = (d.e > 0 ? std::to_string(d.e) + "," : "") + std::to_string(d.n) + "," + std::to_string(d.k);
  const std::string state = R"({"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[)" + dims + "]}";
  out.push_back({values, "U8", std::to_string(data.size()) + ",1", data});
  out.push_back({values + ".absmax", "F32", std::to_string(d.values.size() / 64), scales});
  out.push_back({values + ".quant_map", "F32", "16", map});
  out.push_back({values + ".quant_state.bitsandbytes__nf4", "U8", std::to_string(state.size()), state});
}

/// One matrix or stack of this size, of a kind drawn by chance. Returns the layer's name.
std::string add(Random& random, size_t kind, const std::string& base, bool bare, Drawn& d, std::vector<TestTensor>& out) {
  d.values.resize(static_cast<size_t>(std::max<int64_t>(d.e, 1) * d.n * d.k));
  if (kind > 4) d.transposed = false;
  const bool packed = kind == 7 || (kind == 6 && d.n % 2 == 0);
  const Names names = names_of(random, base, bare, packed);
  switch (kind) {
    case 0:
      floats(random, d, names, out);
      break;
    case 1:
      bytes(random, true, d.n, d.k, d, names, out);
      break;
    case 2:
      bytes(random, true, 1, d.k, d, names, out);
      break;
    case 3:
      bytes(random, true, 128, 128, d, names, out);
      break;
    case 4:
      bytes(random, false, 1, d.k, d, names, out);
      break;
    case 5:
      nibbles(random, true, false, d, names, out);
      break;
    case 6:
      nibbles(random, false, packed, d, names, out);
      break;
    case 7:
      words(random, d, names, out);
      break;
    case 8:
      gptq(random, d, base, bare ? "_" : ".", out);
      break;
    default:
      nf4(random, d, names.values, out);
  }
  return base;
}

size_t section_of(size_t kind) {
  if (kind == 7) return 3;
  if (kind == 8) return 2;
  return kind == 3 ? 1 : 0;
}

/// The config's section somewhere, and the model's sizes.
std::string config(Random& random, size_t kind, int64_t hidden, int64_t experts) {
  const char* const kSections[] = {
      "", R"("quant_method":"fp8","weight_block_size":[128,128])",
      R"("quant_method":"gptq","checkpoint_format":"gptq_v2","bits":4)",
      R"("quant_method":"compressed-tensors","config_groups":{"g":{"weights":{"num_bits":4,"group_size":32}}})"};
  const std::string section = kSections[section_of(kind)];
  std::string members = R"("hidden_size":)" + std::to_string(hidden) + R"(,"num_experts":)" + std::to_string(experts);
  if (!section.empty()) members += R"(,"quantization_config":{)" + section + "}";
  std::string text = "{" + members + "}";
  for (size_t depth = below(random, 3); depth > 0; --depth)
    text = std::string("{\"") + one_of(random, {"text_config", "llm_config", "language_config", "thinker_config"}) +
           "\":" + text + "}";
  return text;
}

/// Names of types that no format here has as weights.
void add_strange(Random& random, std::vector<TestTensor>& out) {
  const auto [type, size] = one_of(
      random, {std::pair{"F64", 8}, {"I16", 2}, {"U64", 8}, {"F8_E5M2", 1}, {"I32", 4}, {"U8", 1}, {"BOOL", 1}, {"F4", 0}});
  const std::string name = one_of(random, {"strange.trellis", "strange.weight", "strange", "a.b.codes", "strange.qidxs"});
  const int64_t rows = 2 * static_cast<int64_t>(1 + below(random, 3)), columns = 4;
  const auto bytes = static_cast<size_t>(size == 0 ? rows * columns / 2 : rows * columns * size);
  out.push_back({name, type, std::to_string(rows) + "," + std::to_string(columns), std::string(bytes, '\1')});
  if (below(random, 2) == 0) out.push_back({name + "_scales", "F16", "3,2", std::string(12, '\0')});
}

/// What loading gives of each expert, and what a conversion reads of it.
void expect_values(const Checkpoint& checkpoint, size_t index, const Drawn& drawn) {
  const Layer layer = checkpoint.layer(index);
  for (uint32_t e = 0; e < layer.experts; ++e) {
    const float* const expected = drawn.values.data() + drawn.at(e, 0, 0);
    const auto source = must(checkpoint.source(index, e, {}));
    const auto values = must(decode_all(*source, 32));
    ASSERT_TRUE(std::equal(values.begin(), values.end(), expected)) << "expert " << e;
    const auto floats = must(floats_of(checkpoint, index, e, {}));
    std::vector<double> row(static_cast<size_t>(layer.k));
    for (int64_t r = 0; r < layer.n; ++r) {
      ASSERT_TRUE(read_finite_row(floats.matrix, r, row).ok());
      ASSERT_TRUE(std::equal(row.begin(), row.end(), expected + r * layer.k)) << "expert " << e << " row " << r;
    }
  }
}

TEST(Account, OfFilesDrawnByChance) {
  Random random(20261128);
  size_t read = 0, refused = 0;
  const int files = whole_campaigns() ? 10000 : 750;
  for (int file = 0; file < files; ++file) {
    const size_t kind = below(random, 10);
    const bool stacked = below(random, 2) == 0, bare = stacked && below(random, 2) == 0;
    const bool transposed = bare && below(random, 2) == 0;
    const int64_t experts = stacked ? 2 + static_cast<int64_t>(below(random, 2)) : 0;
    const int64_t hidden = 32 * static_cast<int64_t>(1 + below(random, 5)),
                  between = 32 * static_cast<int64_t>(1 + below(random, 3));
    const std::string block =
        one_of(random, {"model.layers.0.mlp.", "language_model.model.layers.3.ffn.", "model.language_model.layers.1.moe."});
    std::vector<TestTensor> tensors{{block + "norm.weight", "F32", "4", std::string(16, '\0')}};
    const std::string inside = block + (stacked ? "experts." : "");
    Drawn up{experts, stacked ? 2 * between : between, hidden, transposed, {}}, down{experts, hidden, between, transposed, {}};
    const std::string up_name = add(random, kind, inside + (stacked ? "gate_up_proj" : "up_proj"), bare, up, tensors);
    const std::string down_name = add(random, kind, inside + "down_proj", bare, down, tensors);
    if (below(random, 3) == 0) add_strange(random, tensors);
    if (below(random, 4) == 0)
      tensors.push_back({up_name + (bare ? "_" : ".") + "odd_scale", "F32", "2,2", std::string(16, '\0')});
    const bool odd = tensors.back().name.ends_with("odd_scale") && !bare;
    std::shuffle(tensors.begin(), tensors.end(), random);
    const std::string text = config(random, kind, hidden, experts);
    const auto checkpoint = must(open_memory({{"model.safetensors", safetensors(tensors)}, {"config.json", text}}));
    std::string all;
    for (const TestTensor& t : tensors) all += t.name + " " + t.dtype + " [" + t.shape + "]\n";
    SCOPED_TRACE(std::to_string(file) + ": " + text + "\n" + all);
    ASSERT_EQ(check(*checkpoint), "");
    for (const auto& [name, drawn] : {std::pair{&up_name, &up}, {&down_name, &down}}) {
      const auto index = checkpoint->find_layer(*name);
      ASSERT_TRUE(index.has_value()) << *name;
      const Layer layer = checkpoint->layer(*index);
      if (odd && name == &up_name) {
        EXPECT_FALSE(layer.status.ok()) << "a scale beside it is known to nobody";
        ++refused;
        continue;
      }
      ASSERT_TRUE(layer.status.ok()) << layer.status.message();
      ASSERT_EQ(layer.n, drawn->n);
      ASSERT_EQ(layer.k, drawn->k);
      ASSERT_NO_FATAL_FAILURE(expect_values(*checkpoint, *index, *drawn)) << *name;
      ++read;
    }
  }
  EXPECT_GT(read, static_cast<size_t>(1.7 * files));
  EXPECT_GT(refused, static_cast<size_t>(files) / 20);
}

}  // namespace account
}  // namespace
}  // namespace metal_marlin::testing
