// The mode --experts: mixtures of experts. Products of a graph take turns at several stacks of experts and route their tokens
// anew, so that a frequent expert's weights have left the caches when it is met again.
#include <algorithm>
#include <iterator>
#include <random>
#include <span>
#include <vector>

#include "timing_check.h"
#include "timing_modes.h"
#include "timing_products.h"
#include "tools/router.h"

namespace timing {
namespace {

namespace mm = metal_marlin;

constexpr int64_t kWidth = 2880, kMostTokens = 4096;
constexpr Shape kGateUp{"gate_up", kWidth, 2 * kWidth, kMostTokens}, kDown{"down", kWidth, kWidth, kMostTokens};
constexpr const Shape* kExpertShapes[] = {&kGateUp, &kDown};
constexpr size_t kStacks = 4;     // of each shape
constexpr int64_t kToCheck = 16;  // routed rows, and columns: each row has another expert to decode

/// What one product of a case does.
struct Step {
  const Shape& shape;
  marlin_epilogue epilogue;
  bool sums;  ///< A has one row for each routed row, and expert_scales sum those of a token
};
constexpr Step kSingle[] = {{kDown, MARLIN_EPILOGUE_NONE, false}};
constexpr Step kGptOss[] = {{kGateUp, MARLIN_EPILOGUE_SWIGLU_OAI, false}, {kDown, MARLIN_EPILOGUE_NONE, true}};
struct Case {
  const char* name;
  std::span<const Step> steps;
};
constexpr Case kCases[] = {{"single", kSingle}, {"gpt-oss", kGptOss}};

/// Of a format: [shape][stack].
using Stacks = std::vector<mm::weights>[std::size(kExpertShapes)];
size_t place_of(const Shape& shape) { return &shape == &kGateUp ? 0 : 1; }

class Experts {
 public:
  explicit Experts(const Bench& bench)
      : bench_(bench),
        count_(bench.options.expert_count),
        top_k_(bench.options.top_k),
        most_tokens_(*std::max_element(bench.options.rows.begin(), bench.options.rows.end())),
        made_(kExpertShapes),
        a_(bench.device, static_cast<size_t>(most_tokens_ * kWidth), bench.options.activations),
        slots_(bench.device, bytes_of_rows(most_tokens_ * top_k_)),
        sums_(bench.device, bytes_of_rows(most_tokens_)),
        scales_(static_cast<size_t>(most_tokens_ * top_k_)),
        scales_there_(bench.device, scales_.size() * sizeof(float)),
        numbers_(bench.device, bytes_of_numbers(), bench.options.activations),
        report_(
            bench.setting(), bench.options.json, "not asked for",
            "Mixtures of experts: single is 2880 -> 2880 with a row of C for each expert of a token; gpt-oss is gate_up\n"
            "2880 -> 5760 with SWIGLU_OAI, and down 2880 -> 2880, which sums the experts of a token. The tokens of each\n"
            "product of a graph are routed anew, to one of four stacks of experts in turn. The r-th most frequent expert\n"
            "has a weight of 1 / r^skew. touched: different experts of a product's tokens, in the mean; MB: their weights.") {
    std::mt19937 random(4);
    std::uniform_real_distribution<float> uniform(0.05F, 0.5F);
    for (float& scale : scales_) scale = uniform(random);
    bench_.device.upload(scales_there_.at(), scales_.data(), scales_.size() * sizeof(float));
  }

  /// Whether all products ran and were right.
  bool run() {
    for (const Format* format : bench_.options.formats) {
      Stacks stacks;
      for (size_t shape = 0; shape < std::size(kExpertShapes); ++shape)
        for (size_t stack = 0; stack < kStacks; ++stack)
          stacks[shape].push_back(
              made_.pack_experts(bench_.context, *kExpertShapes[shape], *format, first_copy(stack), count_));
      for (const Case& one : kCases)
        for (const double skew : bench_.options.skews)
          for (const int64_t tokens : bench_.options.rows) run({one, *format, stacks, skew, tokens});
    }
    return report_.is_right();
  }

 private:
  /// A line.
  struct TimedExperts {
    const Case& products;
    const Format& format;
    const Stacks& stacks;
    double skew;
    int64_t tokens;
  };
  /// What a turn multiplies: its own experts of the next stack.
  struct Turns {
    std::vector<std::vector<int32_t>> ids;
    std::vector<size_t> distinct;
  };

  static size_t bytes_of_rows(int64_t rows) { return static_cast<size_t>(rows * kWidth) * kElementBytes; }
  size_t first_copy(size_t stack) const { return stack * static_cast<size_t>(count_); }
  /// Two products, so that one reads what the other before it did not.
  size_t bytes_of_numbers() const {
    size_t most = 0;
    for (const Format* format : bench_.options.formats)
      most = std::max(most, 2 * static_cast<size_t>(count_) * packed_bytes(kGateUp, *format));
    return most;
  }

  void run(const TimedExperts& place) {
    report_.add({{"model", "experts"},
                 {"products", place.products.name, "products", -8},
                 {"format", place.format.name, "format", -8},
                 {"group", place.format.group},
                 {"experts", count_},
                 {"top_k", top_k_},
                 {"skew", place.skew, "skew", 4, 1},
                 {"tokens", place.tokens, "tokens", 6}},
                [&] { return measure(place); });
  }

  Turns turns_of(const TimedExperts& place) const {
    std::vector<metal_marlin::tools::Router> routers;  // of each stack, whose frequent experts are others
    for (size_t stack = 0; stack < kStacks; ++stack) routers.emplace_back(count_, place.skew, stack + 1);
    Turns turns;
    size_t count = kStacks;
    for (size_t turn = 0; turn < count; ++turn) {
      turns.ids.push_back(routers[turn % kStacks].draw(place.tokens, top_k_));
      turns.distinct.push_back(static_cast<size_t>(metal_marlin::tools::count_distinct(turns.ids.back())));
      if (turn != 0) continue;
      count = (copies_of(turns.distinct[0] * bytes_of_expert(place)) + kStacks - 1) / kStacks * kStacks;
    }
    return turns;
  }
  static size_t bytes_of_expert(const TimedExperts& place) {
    size_t bytes = 0;
    for (const Step& step : place.products.steps) bytes += packed_bytes(step.shape, place.format);
    return bytes;
  }

  Measured measure(const TimedExperts& place) const {
    const Device& device = bench_.device;
    const Turns turns = turns_of(place);
    const size_t slots = static_cast<size_t>(place.tokens * top_k_), bytes = slots * sizeof(int32_t);
    const Memory ids(device, turns.ids.size() * bytes);
    for (size_t turn = 0; turn < turns.ids.size(); ++turn) device.upload(ids.at(turn * bytes), turns.ids[turn].data(), bytes);
    std::vector<marlin_gemm_desc> descs;
    for (size_t turn = 0; turn < turns.ids.size(); ++turn)
      for (const Step& step : place.products.steps) descs.push_back(product_of(place, step, turn, ids.at(turn * bytes)));
    const Products products(bench_.context, device, descs, place.tokens);
    const Graph ours = warm_graph(device, [&] { products.multiply(); });
    device.fill(slots_.at(), 0xff, bytes_of_rows(place.tokens * top_k_));
    device.fill(sums_.at(), 0xff, bytes_of_rows(place.tokens));
    ours.launch();
    const Verdict verdict = verdict_of(place, turns);

    const Graph read(device, [&] { read_experts(place, turns); });
    const Graph* const graphs[] = {&ours, &read};
    auto times = replay_in_turn(device, graphs, bench_.options.rounds);
    for (auto& of_graph : times)
      for (double& time : of_graph) time /= static_cast<double>(turns.ids.size());
    Fields fields = report_.times(times);
    double touched = 0, weights = 0;
    for (const size_t distinct : turns.distinct)
      touched += static_cast<double>(distinct) / static_cast<double>(turns.distinct.size());
    mm::tools::Json kernels;
    for (size_t i = 0; i < place.products.steps.size(); ++i) {
      const Shape& shape = place.products.steps[i].shape;
      weights += static_cast<double>(shape.n * shape.k);
      kernels[shape.name] = kernel_of(descs[i]);
    }
    const double all_bytes = touched * static_cast<double>(bytes_of_expert(place));
    fields.push_back(tflops_of(static_cast<double>(place.tokens * top_k_) * weights, fields));
    fields.insert(fields.end(), {{"distinct_experts", touched, "touched", 7, 1},
                                 {"weight_megabytes", 1e-6 * all_bytes, "MB", 7, 1},
                                 {"kernels", kernels, "kernels", -56}});
    return {fields, verdict};
  }

  marlin_gemm_desc product_of(const TimedExperts& place, const Step& step, size_t turn, DevicePtr ids) const {
    const int64_t slots = place.tokens * top_k_, columns = columns_of(step.shape.n, step.epilogue);
    auto desc = mm::make<marlin_gemm_desc>();
    desc.epilogue = step.epilogue;
    desc.weights = place.stacks[place_of(step.shape)][turn % kStacks].get();
    desc.a = step.sums ? device_matrix(slots_.at(), slots, step.shape.k, a_.dtype)
                       : device_matrix(a_.memory.at(), place.tokens, step.shape.k, a_.dtype);
    desc.c = step.sums ? device_matrix(sums_.at(), place.tokens, columns, a_.dtype)
                       : device_matrix(slots_.at(), slots, columns, a_.dtype);
    desc.expert_ids = device_matrix(ids, place.tokens, top_k_, MARLIN_I32);
    if (step.sums) desc.expert_scales = device_matrix(scales_there_.at(), place.tokens, top_k_, MARLIN_F32);
    return desc;
  }

  /// As many bytes as the experts of each product have.
  void read_experts(const TimedExperts& place, const Turns& turns) const {
    size_t at = 0;
    for (const size_t distinct : turns.distinct)
      for (const Step& step : place.products.steps) {
        const size_t bytes = distinct * packed_bytes(step.shape, place.format);
        if (at + bytes > bytes_of_numbers()) at = 0;
        bench_.read_floor.read(numbers_.at(at), bytes);
        at += bytes;
      }
  }

  /// Of the last turn, whose results are left. The results of gate_up are the activations of down.
  Verdict verdict_of(const TimedExperts& place, const Turns& turns) const {
    Verdict verdict;
    for (const Step& step : place.products.steps) {
      if (step.sums) {
        check_sums(place, step, turns, verdict);
      } else {
        check_slots(place, step, turns, verdict);
      }
    }
    return verdict;
  }

  oracle::Weights weights_of(const TimedExperts& place, const Step& step, const Turns& turns, int64_t slot,
                             const Sample& sample) const {
    const size_t stack = (turns.ids.size() - 1) % kStacks;
    const auto expert = static_cast<size_t>(turns.ids.back()[static_cast<size_t>(slot)]);
    return made_.sample(step.shape, place.format, first_copy(stack) + expert, sample.rows);
  }
  std::vector<uint16_t> row_of(const Memory& memory, int64_t row) const {
    std::vector<uint16_t> values(static_cast<size_t>(kWidth));
    bench_.device.download(values.data(), memory.at(bytes_of_rows(row)), bytes_of_rows(1));
    return values;
  }

  void check_slots(const TimedExperts& place, const Step& step, const Turns& turns, Verdict& verdict) const {
    const Sample sample = sample_of(step.shape.n, step.epilogue, kToCheck);
    for (const int64_t slot : some_of(place.tokens * top_k_, kToCheck)) {
      const int64_t token = slot / top_k_;
      const auto expected =
          expected_of(weights_of(place, step, turns, slot, sample), a_.view(), {&token, 1}, step.epilogue, a_.dtype);
      const std::vector<uint16_t> c = row_of(slots_, slot);
      for (size_t i = 0; i < expected.size(); ++i)
        verdict.add(expected[i], oracle::read(a_.dtype, c.data(), sample.columns[i]));
    }
  }

  void check_sums(const TimedExperts& place, const Step& step, const Turns& turns, Verdict& verdict) const {
    const Sample sample = sample_of(step.shape.n, step.epilogue, kToCheck);
    oracle::Product rounded;
    rounded.c_dtype = a_.dtype;
    for (const int64_t token : some_of(place.tokens, std::max<int64_t>(1, kToCheck / top_k_))) {
      std::vector<double> scales;
      std::vector<std::vector<oracle::Element>> parts(sample.columns.size());
      for (int64_t slot = token * top_k_; slot < (token + 1) * top_k_; ++slot) {
        const std::vector<uint16_t> a = row_of(slots_, slot);
        const int64_t only = 0;
        const auto expected = expected_of(weights_of(place, step, turns, slot, sample), {a_.dtype, a.data()}, {&only, 1},
                                          step.epilogue, MARLIN_F32);
        for (size_t i = 0; i < expected.size(); ++i) parts[i].push_back(expected[i]);
        scales.push_back(scales_[static_cast<size_t>(slot)]);
      }
      const std::vector<uint16_t> c = row_of(sums_, token);
      for (size_t i = 0; i < parts.size(); ++i)
        verdict.add(oracle::weighted_sum(rounded, scales, parts[i], 0), oracle::read(a_.dtype, c.data(), sample.columns[i]));
    }
  }

  const Bench& bench_;
  const int64_t count_, top_k_, most_tokens_;
  const RandomWeights made_;
  const Numbers a_;
  const Memory slots_, sums_;  // C with a row for each routed row, or for each token
  std::vector<float> scales_;
  const Memory scales_there_;
  const RepeatedNumbers numbers_;
  Report report_;
};

}  // namespace

bool time_experts(const Bench& bench) { return Experts(bench).run(); }

}  // namespace timing
