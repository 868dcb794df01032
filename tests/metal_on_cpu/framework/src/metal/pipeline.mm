// Pipelines, what they tell of their kernels, and archives of them.
#include <fstream>
#include <iterator>

#include "metal/objects.h"

using metal_framework::Argument;
using metal_framework::string;

NSErrorDomain const MTLBinaryArchiveDomain = @"MTLBinaryArchiveDomain";

@interface MOCBinding : NSObject <MTLBufferBinding, MTLThreadgroupBinding> {
 @public
  Argument argument;
}
@end

@implementation MOCBinding
- (NSString*)name {
  return string(argument.name);
}
- (MTLBindingType)type {
  return argument.kind == Argument::Kind::kBuffer ? MTLBindingTypeBuffer : MTLBindingTypeThreadgroupMemory;
}
- (MTLBindingAccess)access {
  return argument.read_only ? MTLBindingAccessReadOnly : MTLBindingAccessReadWrite;
}
- (NSUInteger)index {
  return argument.index;
}
- (BOOL)isUsed {
  return YES;
}
- (BOOL)isArgument {
  return YES;
}
- (NSUInteger)bufferAlignment {
  return argument.alignment;
}
- (NSUInteger)bufferDataSize {
  return argument.size;
}
- (NSUInteger)threadgroupMemoryAlignment {
  return argument.alignment;
}
- (NSUInteger)threadgroupMemoryDataSize {
  return argument.size;
}
@end

@implementation MTLComputePipelineReflection {
  NSArray* all;
}
- (instancetype)initWithFunction:(const metal_framework::Function&)function {
  NSMutableArray* made = [NSMutableArray array];
  for (const Argument& argument : function.arguments()) {
    MOCBinding* binding = [[MOCBinding alloc] init];
    binding->argument = argument;
    [made addObject:binding];
  }
  all = made;
  return self;
}
- (NSArray*)bindings {
  return all;
}
@end

@implementation MOCComputePipelineState
- (NSString*)label {
  return given_label;
}
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return max_threads;
}
- (NSUInteger)threadExecutionWidth {
  return metal_framework::kSimdWidth;
}
- (NSUInteger)staticThreadgroupMemoryLength {
  return function->function->static_threadgroup_memory();
}
- (BOOL)supportIndirectCommandBuffers {
  return NO;
}
- (MTLComputePipelineReflection*)reflection {
  return shown;
}
@end

@implementation MTLComputePipelineDescriptor
- (void)reset {
  self.label = nil;
  self.computeFunction = nil;
  self.threadGroupSizeIsMultipleOfThreadExecutionWidth = NO;
  self.maxTotalThreadsPerThreadgroup = 0;
  self.supportIndirectCommandBuffers = NO;
  self.binaryArchives = nil;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLComputePipelineDescriptor* made = [[MTLComputePipelineDescriptor alloc] init];
  made.label = self.label;
  made.computeFunction = self.computeFunction;
  made.threadGroupSizeIsMultipleOfThreadExecutionWidth = self.threadGroupSizeIsMultipleOfThreadExecutionWidth;
  made.maxTotalThreadsPerThreadgroup = self.maxTotalThreadsPerThreadgroup;
  made.supportIndirectCommandBuffers = self.supportIndirectCommandBuffers;
  made.binaryArchives = self.binaryArchives;
  return made;
}
@end

@implementation MTLBinaryArchiveDescriptor
- (id)copyWithZone:(NSZone*)zone {
  MTLBinaryArchiveDescriptor* made = [[MTLBinaryArchiveDescriptor alloc] init];
  made.url = self.url;
  return made;
}
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
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (BOOL)contains:(MOCFunction*)function {
  const std::lock_guard<std::mutex> lock(mutex);
  return entries.count(entry_of(function)) != 0;
}
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(NSError* __autoreleasing*)error {
  MOCFunction* function = (MOCFunction*)descriptor.computeFunction;
  if (function == nil) return refuse(error, MTLBinaryArchiveErrorUnexpectedElement, "the descriptor has no compute function");
  if (metal_framework::fails(metal_framework::Fault::kArchive))
    return refuse(error, MTLBinaryArchiveErrorCompilationFailure, "planted");
  const std::lock_guard<std::mutex> lock(mutex);
  entries.insert(entry_of(function));
  return YES;
}
- (BOOL)serializeToURL:(NSURL*)url error:(NSError* __autoreleasing*)error {
  const std::lock_guard<std::mutex> lock(mutex);
  if (entries.empty()) return refuse(error, MTLBinaryArchiveErrorUnexpectedElement, "the archive is empty");
  if (metal_framework::fails(metal_framework::Fault::kArchive))
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
