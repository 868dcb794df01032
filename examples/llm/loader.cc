#include "loader.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "half.h"
#include "tensor_names.h"

namespace llm {
namespace {

namespace mm = metal_marlin;

// Do two layers become one handle?
bool fit(const marlin_layer_info& a, const marlin_layer_info& b) {
  return a.format == b.format && a.group_size == b.group_size && a.flags == b.flags &&
         a.dtype == b.dtype && a.layout == b.layout;
}

}  // namespace

Loader::Loader(const std::string& path, int64_t layers, std::function<void(double)> progress)
    : path_(path),
      file_(path),
      layers_(file_.layers()),
      names_(find(kGgufNames.embedding) ? kGgufNames : kHuggingFaceNames),
      progress_(std::move(progress)),
      all_(static_cast<double>(layers)) {
  auto ranks = mm::make<marlin_value>();
  packed_ = marlin_checkpoint_value(file_.get(), "marlin.ranks", &ranks, nullptr) == MARLIN_OK;
}

void Loader::fail(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }

bool Loader::has_tensor(const std::string& name) const {
  marlin_matrix found{};
  return marlin_checkpoint_tensor(file_.get(), name.c_str(), &found, nullptr) == MARLIN_OK;
}

void Loader::check_all_used(const char* architecture) {
  for (const std::string& name : packed_ ? names_of_container() : tensor_names(path_)) {
    if (!is_used(name))
      fail("tensor '" + name + "': expected none of this name in a model of the architecture " +
           architecture + ", which this program would compute without it");
  }
}

// Its layers, and what may belong to them.
std::vector<std::string> Loader::names_of_container() const {
  std::vector<std::string> names, possible = {kGgufNames.rotation_factors};
  for (const marlin_layer_info& layer : layers_) {
    names.emplace_back(layer.name);
    std::istringstream joined(layer.name);
    for (std::string part; std::getline(joined, part, '+');)
      possible.push_back(part.substr(0, part.rfind(".weight")) + ".bias");
  }
  std::copy_if(possible.begin(), possible.end(), std::back_inserter(names),
               [&](const std::string& name) { return has_tensor(name); });
  return names;
}

// In folders a layer has several tensors, whose names begin with its own, and its experts may be
// stored one by one. AutoGPTQ gives every layer a bias, of zeros if the model has none.
bool Loader::is_used(std::string name) {
  if (used_.contains(name)) return true;
  if (name.ends_with(".bias")) {
    const marlin_matrix m = file_.tensor(name);
    const std::vector<float> bias = vector(name, m.rows * m.cols);
    return std::all_of(bias.begin(), bias.end(), [](float value) { return value == 0; });
  }
  if (name.ends_with(".rotary_emb.inv_freq")) return true;  // as config.json has it
  // In a GGUF, the library reads the scale of a tensor beside its weights, and ignores that of the
  // activations.
  for (const std::string part : {".scale", ".input_scale"})
    if (name.ends_with(part) &&
        used_.contains(name.substr(0, name.size() - part.size()) + ".weight"))
      return true;
  static const std::regex expert(R"(\.experts\.[0-9]+\.)");
  name = std::regex_replace(name, expert, ".experts.");
  for (size_t end = name.size(); end != std::string::npos && end > 0;
       end = name.find_last_of("._", end - 1))
    if (used_.contains(name.substr(0, end))) return true;
  return false;
}

int64_t Loader::rows(const std::string& name) const {
  const marlin_layer_info* layer = find(name);
  if (!layer) throw std::runtime_error(path_ + ": has no layer '" + name + "'");
  return layer->n;
}

Joined Loader::load(const mm::context& to, const std::vector<std::string>& names, int64_t n,
                    int64_t k, int64_t experts, marlin_format floats,
                    const std::vector<marlin_shard>& shards) {
  if (packed_) return load_packed(to, names);
  std::vector<const marlin_layer_info*> found;
  int64_t rows = 0;
  for (const std::string& name : names) {
    const marlin_layer_info* layer = find(name);
    if (!layer) throw std::runtime_error(path_ + ": has no layer '" + name + "'");
    if (layer->experts != experts) wrong_size(name, layer->experts, experts, "experts");
    if (layer->k != k) wrong_size(name, layer->k, k, "columns");
    rows += layer->n;
    found.push_back(layer);
  }
  if (n != 0 && rows != n) wrong_size(names[0], rows, n, "rows");
  Joined joined;
  for (size_t begin = 0, end = 0; begin < found.size(); begin = end) {
    while (end < found.size() && fit(*found[begin], *found[end])) ++end;
    joined.push_back(load(to, Layers(found).subspan(begin, end - begin), floats,
                          shards.empty() ? nullptr : shards.data() + begin));
  }
  return joined;
}

// As few entries of the container as hold these layers.
Joined Loader::load_packed(const mm::context& to, const std::vector<std::string>& names) {
  Joined joined;
  for (size_t begin = 0; begin < names.size();) {
    const marlin_layer_info* entry = nullptr;
    size_t end = names.size();
    for (; end > begin && !entry; --end) {
      std::string plain, gguf;  // the names with and without what GGUF adds
      for (size_t i = begin; i < end; ++i) {
        plain += (i > begin ? "+" : "") + names[i];
        gguf += (i > begin ? "+" : "") + names[i] + ".weight";
      }
      for (const marlin_layer_info& layer : layers_)
        if (layer.name == plain || layer.name == gguf) entry = &layer;
      if (entry) break;
    }
    if (!entry) throw std::runtime_error(path_ + ": has no layer '" + names[begin] + "'");
    joined.push_back(load(to, Layers(&entry, 1), MARLIN_FORMAT_NONE, nullptr));
    begin = end;
  }
  return joined;
}

mm::weights Loader::load(const mm::context& to, Layers layers, marlin_format floats,
                         const marlin_shard* shards) {
  std::vector<const char*> names;
  for (const marlin_layer_info* layer : layers) {
    names.push_back(layer->name);
    used_.insert(layer->name);
  }
  auto desc = mm::make<marlin_load_desc>();
  desc.layers = names.data();
  desc.shards = shards;
  desc.layer_count = static_cast<uint32_t>(names.size());
  if (layers[0]->format == MARLIN_FORMAT_NONE) desc.format = floats;
  loading_ = static_cast<double>(names.size());
  desc.user = this;
  desc.progress = [](void* user, uint64_t done, uint64_t total) {
    const auto* const self = static_cast<const Loader*>(user);
    const double part = total ? static_cast<double>(done) / static_cast<double>(total) : 1;
    self->progress_(std::min(1.0, (self->loaded_ + self->loading_ * part) / self->all_));
    return 0;
  };
  mm::weights weights = mm::load(to, file_, desc);
  loaded_ += loading_;
  return weights;
}

// Files align nothing, so elements are copied out.
std::vector<float> Loader::vector(const std::string& tensor, int64_t size) {
  used_.insert(tensor);
  const marlin_matrix m = file_.tensor(tensor);
  if (m.rows * m.cols != size) wrong_size(tensor, m.rows * m.cols, size, "elements");
  const auto* bytes = static_cast<const unsigned char*>(m.data) + m.offset_bytes;
  std::vector<float> out(static_cast<size_t>(size));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    if (m.dtype == MARLIN_F32)
      std::memcpy(&out[i], bytes + 4 * i, 4);
    else
      std::memcpy(&half, bytes + 2 * i, 2);
    if (m.dtype == MARLIN_F16)
      out[i] = float16_to_float(half);
    else if (m.dtype == MARLIN_BF16)
      out[i] = bfloat16_to_float(half);
    else if (m.dtype != MARLIN_F32)
      throw std::runtime_error(path_ + ": tensor '" + tensor + "': expected floats");
  }
  return out;
}

// Names as the tables have them, with or without the ".weight" that GGUF keeps.
const marlin_layer_info* Loader::find(const std::string& name) const {
  for (const marlin_layer_info& layer : layers_) {
    if (layer.name == name || layer.name == name + ".weight") return &layer;
  }
  return nullptr;
}

void Loader::wrong_size(const std::string& name, int64_t found, int64_t expected,
                        const char* what) const {
  throw std::runtime_error(path_ + ": '" + name + "': expected " + std::to_string(expected) + " " +
                           what + ", found " + std::to_string(found));
}

}  // namespace llm
