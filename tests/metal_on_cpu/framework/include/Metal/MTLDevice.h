#pragma once

#include <Metal/MTLCommand.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MTLGPUFamily) {
  MTLGPUFamilyApple1 = 1001,
  MTLGPUFamilyApple6 = 1006,
  MTLGPUFamilyApple7 = 1007,
  MTLGPUFamilyMetal4 = 5002
};

@interface MTLArchitecture : NSObject
@property(nonatomic, readonly) NSString* name;
@end

typedef void (^MTLNewLibraryCompletionHandler)(id<MTLLibrary> _Nullable library, NSError* _Nullable error);

@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) uint64_t registryID METAL_HOST_AVAILABLE_IOS(18.0);
@property(readonly) MTLArchitecture* architecture;
@property(readonly) MTLSize maxThreadsPerThreadgroup;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) BOOL hasUnifiedMemory;
- (BOOL)supportsFamily:(MTLGPUFamily)family;

- (nullable id<MTLCommandQueue>)newCommandQueue;
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (nullable id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                            length:(NSUInteger)length
                                           options:(MTLResourceOptions)options
                                       deallocator:(void (^_Nullable)(void* bytes, NSUInteger length))deallocator;
- (nullable id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                                        options:(nullable MTLCompileOptions*)options
                                          error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (void)newLibraryWithSource:(NSString*)source
                     options:(nullable MTLCompileOptions*)options
           completionHandler:(MTLNewLibraryCompletionHandler)completionHandler;
- (nullable id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:
                                   (MTLAutoreleasedComputePipelineReflection _Nullable __autoreleasing* _Nullable)reflection
                                    error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (nullable id<MTLFence>)newFence;
- (nullable id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                                        error:(NSError* _Nullable __autoreleasing* _Nullable)error
    API_AVAILABLE(macos(15.0), ios(18.0));
- (nullable id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                          error:(NSError* _Nullable __autoreleasing* _Nullable)error;
@end

FOUNDATION_EXPORT id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void) NS_RETURNS_RETAINED;
FOUNDATION_EXPORT NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) NS_RETURNS_RETAINED METAL_HOST_AVAILABLE_IOS(18.0);

NS_ASSUME_NONNULL_END
