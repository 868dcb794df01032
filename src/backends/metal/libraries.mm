#include "backends/metal/libraries.h"

#include <algorithm>

#include "backends/metal/errors.h"
#include "backends/metal/kernel_text.h"

namespace metal_marlin::metal {
namespace {

// Metal's own commands copy and fill whole words, and only between encoders. These kernels do the
// rest, with one thread per byte, because such ranges are short.
constexpr std::string_view kHelpers = R"(#include <metal_stdlib>
using namespace metal;
kernel void marlin_copy_bytes(device const uchar* from [[buffer(0)]],
                              device uchar* to [[buffer(1)]],
                              constant ulong& bytes [[buffer(2)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint t [[thread_index_in_threadgroup]],
                              uint3 groups [[threadgroups_per_grid]]) {
  const ulong i = (ulong(group.y) * groups.x + group.x) * 256 + t;
  if (i < bytes) to[i] = from[i];
}
kernel void marlin_fill_bytes(device uchar* to [[buffer(0)]], constant uchar& value [[buffer(1)]],
                              constant ulong& bytes [[buffer(2)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint t [[thread_index_in_threadgroup]],
                              uint3 groups [[threadgroups_per_grid]]) {
  const ulong i = (ulong(group.y) * groups.x + group.x) * 256 + t;
  if (i < bytes) to[i] = value;
}
)";

constexpr ShaderFile kHelperFile{"marlin", kHelpers};

// The first language with bfloat, and the first with tensors, which SDKs before macOS 26 do not
// name.
constexpr MTLLanguageVersion kLanguage = MTLLanguageVersion3_1;
constexpr auto kTensorLanguage = static_cast<MTLLanguageVersion>(4 << 16);

// Fast math may change NaN, infinities and the sign of zero, so it is off.
MTLCompileOptions* compile_options(MTLLanguageVersion language) {
  MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
  options.languageVersion = language;
  if (@available(macOS 15.0, iOS 18.0, *)) {
    options.mathMode = MTLMathModeSafe;
    options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
  } else {
    options.fastMathEnabled = NO;
  }
  return options;
}

Result<id<MTLLibrary>> load_compiled(id<MTLDevice> device, std::span<const std::byte> bytes) {
  // The memory is borrowed, so the destructor does nothing.
  const dispatch_block_t nothing = ^{
  };
  dispatch_data_t data = dispatch_data_create(bytes.data(), bytes.size(), nil, nothing);
  NSError* error = nil;
  id<MTLLibrary> library = [device newLibraryWithData:data error:&error];
  if (library == nil) return to_status(error, "loading the compiled kernels");
  return library;
}

bool has(id<MTLLibrary> library, std::string_view kernel) {
  return [library.functionNames containsObject:to_string(kernel)];
}

/// What the compiler says of a text stays true; other errors, as of a compiler that was ended, may
/// not come again.
Status compile_error(NSError* error) {
  const Status status = to_status(error, "compiling the kernels");
  const bool stays = [error.domain isEqualToString:MTLLibraryErrorDomain] &&
                     error.code == static_cast<NSInteger>(MTLLibraryErrorCompileFailure);
  return stays ? unsupported(status) : status;
}

}  // namespace

const ShaderFile* Libraries::file_of(std::string_view kernel) const {
  const std::string_view family = family_of(kernel);
  if (family == kHelperFile.kernels) return &kHelperFile;
  for (const ShaderFile& file : shaders_)
    if (std::ranges::count(words_of(file.kernels, ' '), family) != 0) return &file;
  return nullptr;
}

id<MTLLibrary> Libraries::built(const ShaderFile& file, std::string_view kernel) {
  if (file.library.empty()) return nil;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [entry, is_new] = built_.try_emplace(&file, nil);
  if (is_new) {
    const auto loaded = load_compiled(device_, file.library);
    if (loaded.ok())
      entry->second = loaded.value();
    else  // the text is the way back
      logger_(LogLevel::warning, loaded.status().message());
    entry->second.label = @"metal-marlin";
  }
  return has(entry->second, kernel) ? entry->second : nil;
}

Libraries::Text Libraries::start(const ShaderFile& file, const std::string& macros) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [entry, is_new] = texts_.try_emplace(std::string(file.kernels) + "\n" + macros);
  if (!is_new) return entry->second;
  const auto promise = std::make_shared<std::promise<Result<id<MTLLibrary>>>>();
  entry->second = promise->get_future().share();
  [device_ newLibraryWithSource:to_string(macros + std::string(file.text))
                        options:compile_options(file.has_tensors() ? kTensorLanguage : kLanguage)
              completionHandler:^(id<MTLLibrary> library, NSError* error) {
                library.label = @"metal-marlin";
                if (library != nil)
                  promise->set_value(library);
                else
                  promise->set_value(compile_error(error));
              }];
  return entry->second;
}

void Libraries::expect(std::string_view kernel, std::span<const device::Constant> constants) {
  const ShaderFile* const file = file_of(kernel);
  if (file != nullptr && built(*file, kernel) == nil) start(*file, macros_of(kernel, constants));
}

Result<id<MTLLibrary>> Libraries::with(std::string_view kernel,
                                       std::span<const device::Constant> constants) {
  const ShaderFile* const file = file_of(kernel);
  if (file != nullptr) {
    id<MTLLibrary> built = this->built(*file, kernel);
    if (built != nil) return built;
    const std::string macros = macros_of(kernel, constants);
    const Result<id<MTLLibrary>> made = start(*file, macros).get();
    if (made.ok() && has(made.value(), kernel)) return made;
    if (!made.ok() && made.status().code() != MARLIN_E_UNSUPPORTED) {
      const std::lock_guard<std::mutex> lock(mutex_);
      texts_.erase(std::string(file->kernels) + "\n" + macros);
    }
    MARLIN_RETURN_IF_ERROR(made.status());
  }
  return Status::error(MARLIN_E_NOT_FOUND, "there is no kernel %s", to_string(kernel).UTF8String);
}

}  // namespace metal_marlin::metal
