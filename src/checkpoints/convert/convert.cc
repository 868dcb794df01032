#include "checkpoints/convert/convert.h"

#include <cerrno>
#include <cinttypes>

#include "base/checked.h"
#include "checkpoints/convert/convert_plan.h"
#include "checkpoints/convert/exact_layer.h"
#include "checkpoints/convert/output_file.h"
#include "checkpoints/convert/output_folder.h"
#include "checkpoints/convert/quantize_layer.h"

namespace metal_marlin {
namespace {

constexpr uint64_t kCopyPiece = uint64_t{8} << 20;

uint64_t input_bytes(const Checkpoint& input, const ConvertPlan& plan) {
  uint64_t total = 0;
  for (const Step& step : plan.steps) {
    total += step.layer == kCopied ? input.tensors().view(step.tensor).bytes
                                   : input.layer(plan.layers[step.layer].index).bytes;
  }
  return total;
}

class Conversion {
 public:
  Conversion(const Checkpoint& input, const ConvertOptions& options, const ConvertPlan& plan,
             std::vector<OutputFile>& files)
      : input_(input),
        options_(options),
        plan_(plan),
        files_(files),
        total_(input_bytes(input, plan)) {}

  Status run() {
    for (size_t i = 0; i < plan_.files.size(); ++i) {
      MARLIN_RETURN_IF_ERROR(files_[i].write(0, std::as_bytes(std::span(plan_.files[i].header))));
    }
    for (const Step& step : plan_.steps) {
      MARLIN_RETURN_IF_ERROR(step.layer == kCopied ? copy(step)
                                                   : convert(plan_.layers[step.layer]));
    }
    return {};
  }

 private:
  Status report_progress(uint64_t done, const std::string& name) const {
    if (options_.host.progress == nullptr ||
        options_.host.progress(options_.host.user, done, total_, name.c_str()) == 0)
      return {};
    return Status::error(MARLIN_E_CANCELLED, "'%.150s': cancelled by the caller", name.c_str());
  }

  Status copy(const Step& step) {
    const TensorView from = input_.tensors().view(step.tensor);
    const OutputTensor& to = plan_.tensors[step.output];
    for (uint64_t at = 0; at < from.bytes; at += kCopyPiece) {
      const uint64_t bytes = std::min(kCopyPiece, from.bytes - at);
      MARLIN_RETURN_IF_ERROR(files_[to.file].write(to.offset + at, {from.data + at, bytes}));
      MARLIN_RETURN_IF_ERROR(report_progress(done_ + at + bytes, to.name));
    }
    done_ += from.bytes;
    input_.release({from.data, from.bytes});
    return {};
  }

  Status convert(const PlannedLayer& planned) {
    const Layer layer = input_.layer(planned.index);
    QuantizeSums sums;
    for (uint32_t expert = 0; expert < layer.experts; ++expert) {
      const TensorWriter out = [&](size_t tensor, uint64_t offset,
                                   std::span<const std::byte> bytes) {
        const OutputTensor& to = plan_.tensors[planned.first_tensor + tensor];
        return files_[to.file].write(to.offset + to.bytes / layer.experts * expert + offset, bytes);
      };
      const auto on_rows = [&](int64_t rows) {
        const double share =
            (expert + static_cast<double>(rows) / static_cast<double>(layer.n)) / layer.experts;
        return report_progress(
            done_ + static_cast<uint64_t>(share * static_cast<double>(layer.bytes)), layer.name);
      };
      MARLIN_ASSIGN(const LayerFloats floats,
                    floats_of(input_, planned.index, expert, options_.host));
      MARLIN_ASSIGN(
          const auto source,
          planned.exact
              ? exact_source(input_, planned.index, expert, planned.meta, *plan_.scheme)
              : quantized_source(floats, planned.meta, planned.place, *plan_.scheme, options_));
      const auto encoder = plan_.scheme->encoder().make(source->meta());
      MARLIN_RETURN_IF_ERROR(encode_matrix(floats, *source, *plan_.scheme, *encoder, out,
                                           options_.host, on_rows, sums));
    }
    if (planned.exact && sums.squared_error != 0) {
      return Status::error(MARLIN_E_INTERNAL, "layer '%.100s': values changed that were to stay",
                           layer.name.c_str());
    }
    done_ += layer.bytes;
    for (const TensorView& part : input_.parts(planned.index))
      input_.release({part.data, part.bytes});
    report_outcome(input_, plan_, planned, sums, options_);
    return {};
  }

  const Checkpoint& input_;
  const ConvertOptions& options_;
  const ConvertPlan& plan_;
  std::vector<OutputFile>& files_;
  uint64_t total_, done_ = 0;
};

Status write_files(const Checkpoint& input, const ConvertOptions& options, const ConvertPlan& plan,
                   const OutputFolder& folder) {
  NameChanges system;
  NameChanges& names = options.names != nullptr ? *options.names : system;
  std::vector<OutputFile> files;
  for (const PlannedFile& planned : plan.files) {
    MARLIN_ASSIGN(OutputFile file,
                  OutputFile::create(folder.path() + planned.name, planned.bytes, names));
    files.push_back(std::move(file));
  }
  MARLIN_RETURN_IF_ERROR(Conversion(input, options, plan, files).run());
  for (const SideFile& side : plan.side_files) {
    MARLIN_ASSIGN(OutputFile file,
                  OutputFile::create(folder.path() + side.name, side.text.size(), names));
    MARLIN_RETURN_IF_ERROR(file.write(0, std::as_bytes(std::span(side.text))));
    files.push_back(std::move(file));
  }
  // All bytes are on the disk before the first name changes.
  for (const OutputFile& file : files) MARLIN_RETURN_IF_ERROR(file.sync());
  MARLIN_RETURN_IF_ERROR(publish_all(files, options.overwrite));
  sync_folder(folder.path());
  return {};
}

}  // namespace

Status convert_checkpoint(const Checkpoint& input, const std::string& out_path,
                          const ConvertOptions& options) {
  MARLIN_ASSIGN(const marlin_scheme number, choose_scheme(input, out_path, options.scheme));
  MARLIN_ASSIGN(OutputFolder folder, OutputFolder::find(out_path, number == MARLIN_SCHEME_GGUF));
  MARLIN_ASSIGN(const ConvertPlan plan,
                plan_conversion(input, *scheme_row(number), folder.file(), options));
  MARLIN_RETURN_IF_ERROR(folder.check(input, plan, options.overwrite));
  for (const PlannedLayer& skipped : plan.skipped)
    report_outcome(input, plan, skipped, {}, options);
  if (options.dry_run) {
    for (const PlannedLayer& layer : plan.layers) report_outcome(input, plan, layer, {}, options);
    return {};
  }
  MARLIN_RETURN_IF_ERROR(folder.make());
  MARLIN_RETURN_IF_ERROR(write_files(input, options, plan, folder));
  folder.keep();
  return {};
}

}  // namespace metal_marlin
