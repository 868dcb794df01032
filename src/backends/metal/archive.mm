#include <unistd.h>

#include <cstdio>

#include "backends/metal/errors.h"
#include "backends/metal/pipelines.h"
#include "base/cache_folder.h"

namespace metal_marlin::metal {
namespace {

// The archive is saved at intervals for processes that never end by themselves. Each save writes
// the whole archive.
constexpr int kSaveEvery = 16;

void add(Hash& hash, NSString* text) {
  hash.add(text.UTF8String, [text lengthOfBytesUsingEncoding:NSUTF8StringEncoding]);
}

// The name contains all that machine code depends on: the shaders, the GPU, and the system whose
// compiler made it.
std::string file_name(id<MTLDevice> device, Shaders shaders) {
  Hash hash;
  for (const ShaderFile& file : shaders) {
    hash.add(file.library.data(), file.library.size());
    hash.add(file.text.data(), file.text.size());
  }
  add(hash, device.architecture.name);
  add(hash, [NSProcessInfo processInfo].operatingSystemVersionString);
  char name[64];
  std::snprintf(name, sizeof name, "pipelines-%d.%d-%016llx.binarchive", MARLIN_VERSION_MAJOR,
                MARLIN_VERSION_MINOR, static_cast<unsigned long long>(hash.value()));
  return name;
}

}  // namespace

Archive::Archive(id<MTLDevice> device, const std::string& folder, Shaders shaders, Logger logger)
    : device_(device), logger_(logger) {
  if (folder.empty()) return;
  path_ = folder + "/" + file_name(device, shaders);
  MTLBinaryArchiveDescriptor* descriptor = [[MTLBinaryArchiveDescriptor alloc] init];
  if (access(path_.c_str(), R_OK) == 0) {
    descriptor.url = [NSURL fileURLWithPath:to_string(path_)];
    NSError* error = nil;
    archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:&error];
    if (archive_ == nil) logger_(LogLevel::info, to_status(error, path_.c_str()).message());
    descriptor.url = nil;
  }
  if (archive_ == nil) archive_ = [device newBinaryArchiveWithDescriptor:descriptor error:nil];
  archive_.label = @"metal-marlin";
}

void Archive::prepare(MTLComputePipelineDescriptor* descriptor) {
  if (archive_ == nil) return;
  descriptor.binaryArchives = @[ archive_ ];
  id<MTLComputePipelineState> found =
      [device_ newComputePipelineStateWithDescriptor:descriptor
                                             options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                          reflection:nil
                                               error:nil];
  if (found != nil) return;
  NSError* error = nil;
  if (![archive_ addComputePipelineFunctionsWithDescriptor:descriptor error:&error]) {
    logger_(LogLevel::info, to_status(error, "a kernel cannot be archived").message());
    return;
  }
  if (++unsaved_ >= kSaveEvery) save();
}

// Writes under a temporary name first, so that other processes see the old file or the whole new
// one.
void Archive::save() {
  if (unsaved_ == 0) return;
  unsaved_ = 0;
  @autoreleasepool {
    const std::string temporary = part_name(path_);
    NSError* error = nil;
    if (!make_folders(path_.substr(0, path_.rfind('/')))) {
      logger_(LogLevel::warning,
              Status::error(MARLIN_E_FILE, "%s: the folder cannot be made; pipelines are not kept",
                            path_.c_str())
                  .message());
    } else if (![archive_ serializeToURL:[NSURL fileURLWithPath:to_string(temporary)]
                                   error:&error]) {
      logger_(LogLevel::warning, to_status(error, path_.c_str()).message());
      unlink(temporary.c_str());
    } else if (rename(temporary.c_str(), path_.c_str()) != 0) {
      unlink(temporary.c_str());
    }
  }
}

}  // namespace metal_marlin::metal
