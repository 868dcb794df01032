// Pipelines and archives of them.
#include <fstream>
#include <iterator>

#include "metal/objects.h"

NSErrorDomain const MTLBinaryArchiveDomain = @"MTLBinaryArchiveDomain";

@implementation MOCComputePipelineState
- (void)dealloc {
  presence->there = false;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return function->function->max_threads();
}
- (NSUInteger)threadExecutionWidth {
  return metal_framework::kSimdWidth;
}
- (NSUInteger)staticThreadgroupMemoryLength {
  return function->function->static_threadgroup_memory();
}
@end

@implementation MTLComputePipelineDescriptor
@end

@implementation MTLBinaryArchiveDescriptor
@end

namespace {

constexpr std::string_view kArchiveMark = "metal-on-cpu archive 1\n", kArchiveEnd = "end";

// An entry is a hash: the archive only has to know again what it has seen.
std::string entry_of(MOCFunction* function) { return std::to_string(std::hash<std::string>()(function->identity)); }

BOOL refuse(NSError* __autoreleasing* error, MTLBinaryArchiveError code, const std::string& why) {
  if (error) *error = metal_framework::error(MTLBinaryArchiveDomain, code, why);
  return NO;
}

}  // namespace

@implementation MOCBinaryArchive
@synthesize label;
- (BOOL)contains:(MOCFunction*)function {
  const std::lock_guard<std::mutex> lock(mutex);
  return entries.count(entry_of(function)) != 0;
}
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(NSError* __autoreleasing*)error {
  MOCFunction* function = (MOCFunction*)descriptor.computeFunction;
  if (function == nil) return refuse(error, MTLBinaryArchiveErrorUnexpectedElement, "the descriptor has no compute function");
  if (metal_framework::fails(metal_framework::Fault::archive))
    return refuse(error, MTLBinaryArchiveErrorCompilationFailure, "planted");
  const std::lock_guard<std::mutex> lock(mutex);
  entries.insert(entry_of(function));
  return YES;
}
- (BOOL)serializeToURL:(NSURL*)url error:(NSError* __autoreleasing*)error {
  const std::lock_guard<std::mutex> lock(mutex);
  if (entries.empty()) return refuse(error, MTLBinaryArchiveErrorUnexpectedElement, "the archive is empty");
  if (metal_framework::fails(metal_framework::Fault::archive))
    return refuse(error, MTLBinaryArchiveErrorInternalError, "planted");
  std::ofstream file(url.fileSystemRepresentation, std::ios::binary);
  file << kArchiveMark;
  for (const std::string& entry : entries) file << entry << "\n";
  file << kArchiveEnd << "\n";
  if (file.flush()) return YES;
  return refuse(error, MTLBinaryArchiveErrorInvalidFile, std::string("cannot write ") + url.fileSystemRepresentation);
}
- (BOOL)load:(NSURL*)url error:(NSError* __autoreleasing*)error {
  std::ifstream file(url.fileSystemRepresentation, std::ios::binary);
  const std::string path = url.fileSystemRepresentation;
  if (!file) return refuse(error, MTLBinaryArchiveErrorInvalidFile, "cannot open " + path);
  std::string first, line;
  std::getline(file, first);
  if (first + "\n" != kArchiveMark) return refuse(error, MTLBinaryArchiveErrorInvalidFile, path + " is no archive");
  const std::lock_guard<std::mutex> lock(mutex);
  while (std::getline(file, line) && line != kArchiveEnd) entries.insert(line);
  return line == kArchiveEnd ? YES : refuse(error, MTLBinaryArchiveErrorInvalidFile, path + " is cut off");
}
@end
