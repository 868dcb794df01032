// The callbacks of marlin_checkpoint_convert: progress, outcomes, warnings, threads, and the
// request to stop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "notes.h"
#include "progress.h"

namespace metal_marlin::tools {

/// The outcome of one layer, with its own copies of texts.
struct LayerOutcome {
  marlin_convert_outcome numbers;
  std::string name, reason;
  bool unread = false;  ///< a layer of the input that does not load, and was left as it is
  std::string from_type = {}, to_type = {};  ///< of blocks, in a GGUF
  uint64_t weights() const {
    return static_cast<uint64_t>(numbers.n) * static_cast<uint64_t>(numbers.k) * numbers.experts;
  }
  /// Whether it was quantized already and keeps every value.
  bool exact() const { return (numbers.flags & MARLIN_LAYER_EXACT) != 0; }
  bool quantized() const { return numbers.status == MARLIN_OK; }
};

/// While an object of this class lives, SIGINT, SIGTERM and SIGHUP ask the conversion to stop
/// instead of ending the process.
class ConvertHost {
 public:
  explicit ConvertHost(unsigned threads);
  ~ConvertHost();
  ConvertHost(const ConvertHost&) = delete;
  ConvertHost& operator=(const ConvertHost&) = delete;

  /// Sets the callbacks of a descriptor; *this must outlive the call.
  void attach(marlin_convert_desc& desc);
  const std::vector<LayerOutcome>& outcomes() const { return outcomes_; }
  /// Removes the progress bar, for a line of other output.
  void hide_bar() { bar_.hide(); }
  /// Ends the process by the signal that asked to stop, if one did, as if it had never been caught.
  static void end_if_interrupted();

 private:
  int32_t progress(uint64_t done, uint64_t total, const char* layer);
  /// Prints a message, but counts it if another layer has had the same one.
  void log(const char* message);

  unsigned threads_;
  Progress bar_;
  Notes warnings_;
  std::vector<LayerOutcome> outcomes_;
};

}  // namespace metal_marlin::tools
