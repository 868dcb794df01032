#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/backends.h"
#include "api/checkpoint.h"
#include "api/errors.h"
#include "api/load.h"
#include "checkpoints/container/container.h"
#include "checkpoints/container/writer.h"
#include "checkpoints/tensor_table.h"
#include "formats/packed_budget.h"

namespace metal_marlin::api {
namespace {

/// The loads that desc names, or each layer that loads.
class Loads {
 public:
  static Result<Loads> of(const Checkpoint& files, const marlin_save_desc& d) {
    Loads all;
    if (d.loads == nullptr && d.load_count != 0)
      return Status::error(MARLIN_E_ARGUMENT, "desc->loads is NULL, expected %u", d.load_count);
    for (uint32_t i = 0; i < d.load_count; ++i) {
      if (d.loads[i] == nullptr)
        return prefixed("desc->loads", i,
                        Status::error(MARLIN_E_ARGUMENT, "NULL, expected a descriptor"));
      auto load = read_descriptor(d.loads[i], "load");
      if (!load.ok()) return prefixed("desc->loads", i, load.status());
      all.loads_.push_back(load.take());
    }
    if (d.load_count == 0) all.take_every_layer(files);
    return all;
  }
  const std::vector<marlin_load_desc>& get() const { return loads_; }

 private:
  void take_every_layer(const Checkpoint& files) {
    for (size_t i = 0; i < files.layer_count(); ++i)
      if (files.layer(i).status.ok()) names_.push_back(files.layer_name(i));
    for (const char* const& name : names_) {
      marlin_load_desc load{};
      load.struct_size = sizeof load;
      load.layers = &name;
      load.layer_count = 1;
      loads_.push_back(load);
    }
  }

  std::vector<const char*> names_;  // a vector that moves keeps its memory
  std::vector<marlin_load_desc> loads_;
};

Status check_save(const Checkpoint& files, const marlin_save_desc& d) {
  if ((d.flags & ~MARLIN_SAVE_OVERWRITE) != 0)
    return Status::error(MARLIN_E_UNSUPPORTED, "desc->flags has unknown bits 0x%x",
                         d.flags & ~MARLIN_SAVE_OVERWRITE);
  if (d.rank >= std::max(d.rank_count, 1u))
    return Status::error(MARLIN_E_ARGUMENT, "desc->rank is %u, expected less than rank_count = %u",
                         d.rank, std::max(d.rank_count, 1u));
  if (files.container() != nullptr)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "checkpoint: is packed already, expected its source file %.100s",
                         files.container()->source_name().c_str());
  return {};
}

/// Packs one load and writes it.
Status save_one(const marlin_context& context, Backend& packer, const Checkpoint& files,
                const marlin_load_desc& load, std::set<std::string>& names, PackedBudget& budget,
                ContainerWriter& writer) {
  MARLIN_ASSIGN(const PackedLayers packed, pack_layers(context, packer, files, load));
  LayerNames layers;
  for (uint32_t i = 0; i < load.layer_count; ++i) layers.push_back(load.layers[i]);
  if (!names.insert(layers.joined()).second)
    return Status::error(MARLIN_E_ARGUMENT, "%.120s is loaded twice, expected it once",
                         layers.joined().c_str());
  std::vector<PackedMatrix> experts;
  for (const auto& expert : packed.experts) {
    const Checked in_file = Checked(expert->bytes()).round_up(kContainerAlign);
    MARLIN_RETURN_IF_ERROR(budget.take(in_file.get().value_or(UINT64_MAX)));
    MARLIN_ASSIGN(PackedMatrix matrix, packer.packed_matrix(*expert));
    experts.push_back(std::move(matrix));
  }
  return writer.add_entry(std::move(layers), packed.layout, experts);
}

/// Of one file. Its packed layers are weighed against the bytes of all that are loaded.
PackedBudget budget_of(const Checkpoint& files, const std::vector<marlin_load_desc>& loads) {
  PackedBudget budget;
  for (const marlin_load_desc& load : loads) {
    if (load.layers == nullptr) continue;
    for (const char* const name : std::span(load.layers, load.layer_count)) {
      const auto index = name != nullptr ? files.find_layer(name) : std::nullopt;
      if (index) budget.add_own(Checked(files.layer(*index).bytes));
    }
  }
  return budget;
}

/// The places of the tensors of all layers that are loaded.
std::set<const std::byte*> packed_tensors(const Checkpoint& files,
                                          const std::vector<marlin_load_desc>& loads) {
  std::set<const std::byte*> places;
  for (const marlin_load_desc& load : loads)
    for (uint32_t i = 0; i < load.layer_count; ++i)
      if (const auto index = files.find_layer(load.layers[i]))
        for (const TensorView& part : files.parts(*index)) places.insert(part.data);
  return places;
}

Status save(const marlin_context& context, const Checkpoint& files, const char* out_path,
            const marlin_save_desc& d) {
  MARLIN_RETURN_IF_ERROR(check_save(files, d));
  const marlin_backend kind = d.backend != MARLIN_BACKEND_AUTO ? d.backend : context.backend_kind;
  Backend* packer = context.backend.get();
  std::unique_ptr<Backend> other;  // a GPU's own memory may be out of the host's reach
  if (kind != MARLIN_BACKEND_CPU || context.backend_kind != kind) {
    MARLIN_ASSIGN(other, create_packer(kind, context.options));
    packer = other.get();
  }
  MARLIN_ASSIGN(const Loads loads, Loads::of(files, d));
  const ContainerOptions options{packer->packed_form(), d.rank, std::max(d.rank_count, 1u),
                                 (d.flags & MARLIN_SAVE_OVERWRITE) != 0};
  MARLIN_ASSIGN(const auto writer, ContainerWriter::create(out_path, files, options));
  std::set<std::string> names;
  PackedBudget budget = budget_of(files, loads.get());
  std::vector<marlin_load_desc> saved;
  Status refusal;
  for (uint32_t i = 0; i < loads.get().size(); ++i) {
    const marlin_load_desc& load = loads.get()[i];
    const Status status = save_one(context, *packer, files, load, names, budget, *writer);
    if (status.ok()) {
      saved.push_back(load);
      continue;
    }
    // A layer that nobody asked for and that needs a format stays as it is, as all others may.
    if (status.code() != MARLIN_E_UNSUPPORTED || (d.load_count != 0 && d.refused == nullptr))
      return d.load_count != 0 ? prefixed("desc->loads", i, status) : status;
    refusal = status;
    if (d.refused == nullptr) continue;
    marlin_error why{};
    why.struct_size = sizeof why;
    report(status, &why);
    d.refused(d.user, &load, &why);
  }
  if (d.refused != nullptr && saved.empty()) return refusal;
  const std::set<const std::byte*> packed = packed_tensors(files, saved);
  for (size_t i = 0; i < files.tensors().size(); ++i) {
    const TensorView tensor = files.tensors().view(i);
    if (packed.contains(tensor.data)) continue;
    MARLIN_RETURN_IF_ERROR(writer->add_tensor(tensor));
    files.release({tensor.data, tensor.bytes});
  }
  return writer->finish();
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_checkpoint_save(marlin_context* context, const marlin_checkpoint* checkpoint,
                                     const char* out_path, const marlin_save_desc* desc,
                                     marlin_error* err) {
  return api::boundary(err, [&]() -> Status {
    MARLIN_RETURN_IF_ERROR(api::check_handle(context, "context"));
    MARLIN_RETURN_IF_ERROR(api::check_handle(checkpoint, "checkpoint"));
    if (out_path == nullptr) return Status::error(MARLIN_E_ARGUMENT, "out_path is NULL");
    MARLIN_ASSIGN(const marlin_save_desc d, api::read_optional_descriptor(desc, "desc"));
    return api::save(*context, *checkpoint->files, out_path, d);
  });
}
