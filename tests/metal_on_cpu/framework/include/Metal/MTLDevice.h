#pragma once

#include <Metal/MTLCommand.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSInteger, MTLGPUFamily) {
  MTLGPUFamilyApple1 = 1001,
  MTLGPUFamilyApple2 = 1002,
  MTLGPUFamilyApple3 = 1003,
  MTLGPUFamilyApple4 = 1004,
  MTLGPUFamilyApple5 = 1005,
  MTLGPUFamilyApple6 = 1006,
  MTLGPUFamilyApple7 = 1007,
  MTLGPUFamilyApple8 = 1008,
  MTLGPUFamilyApple9 = 1009,
  MTLGPUFamilyApple10 = 1010,
  MTLGPUFamilyMac1 = 2001,
  MTLGPUFamilyMac2 = 2002,
  MTLGPUFamilyCommon1 = 3001,
  MTLGPUFamilyCommon2 = 3002,
  MTLGPUFamilyCommon3 = 3003,
  MTLGPUFamilyMetal3 = 5001,
  MTLGPUFamilyMetal4 = 5002
};
typedef NS_ENUM(NSUInteger, MTLArgumentBuffersTier) { MTLArgumentBuffersTier1 = 0, MTLArgumentBuffersTier2 = 1 };
typedef NS_ENUM(NSUInteger, MTLDeviceLocation) {
  MTLDeviceLocationBuiltIn = 0,
  MTLDeviceLocationSlot = 1,
  MTLDeviceLocationExternal = 2,
  MTLDeviceLocationUnspecified = NSUIntegerMax
};

@interface MTLArchitecture : NSObject
@property(nonatomic, readonly) NSString* name;
@end

@protocol MTLDevice <NSObject>
@property(readonly) NSString* name;
@property(readonly) uint64_t registryID METAL_HOST_AVAILABLE_IOS(18.0);
@property(readonly) MTLArchitecture* architecture;
@property(readonly) MTLSize maxThreadsPerThreadgroup;
@property(readonly) NSUInteger maxThreadgroupMemoryLength;
@property(readonly) NSUInteger maxBufferLength;
@property(readonly) NSUInteger currentAllocatedSize;
@property(readonly) uint64_t recommendedMaxWorkingSetSize;
@property(readonly) BOOL hasUnifiedMemory;
@property(readonly, getter=isLowPower) BOOL lowPower;
@property(readonly, getter=isHeadless) BOOL headless;
@property(readonly, getter=isRemovable) BOOL removable;
@property(readonly) MTLDeviceLocation location;
@property(readonly) MTLArgumentBuffersTier argumentBuffersSupport;
@property(nullable, readonly) NSArray<id<MTLCounterSet>>* counterSets;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)point;
- (void)sampleTimestamps:(MTLTimestamp*)cpu gpuTimestamp:(MTLTimestamp*)gpu;

- (nullable id<MTLCommandQueue>)newCommandQueue;
- (nullable id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count;

- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (nullable id<MTLBuffer>)newBufferWithBytes:(const void*)bytes length:(NSUInteger)length options:(MTLResourceOptions)options;
- (nullable id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                            length:(NSUInteger)length
                                           options:(MTLResourceOptions)options
                                       deallocator:(void (^_Nullable)(void* bytes, NSUInteger length))deallocator;

- (nullable id<MTLLibrary>)newDefaultLibrary;
- (nullable id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                                        options:(nullable MTLCompileOptions*)options
                                          error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (void)newLibraryWithSource:(NSString*)source
                     options:(nullable MTLCompileOptions*)options
           completionHandler:(MTLNewLibraryCompletionHandler)handler;
- (nullable id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (nullable id<MTLLibrary>)newLibraryWithURL:(NSURL*)url error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (nullable id<MTLLibrary>)newLibraryWithFile:(NSString*)path error:(NSError* _Nullable __autoreleasing* _Nullable)error;

- (nullable id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                                      error:
                                                                          (NSError* _Nullable __autoreleasing* _Nullable)error;
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                options:(MTLPipelineOption)options
                             reflection:
                                 (MTLAutoreleasedComputePipelineReflection _Nullable __autoreleasing* _Nullable)reflection
                                  error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:
                                   (MTLAutoreleasedComputePipelineReflection _Nullable __autoreleasing* _Nullable)reflection
                                    error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                          completionHandler:(MTLNewComputePipelineStateCompletionHandler)handler;

- (nullable id<MTLFence>)newFence;
- (nullable id<MTLEvent>)newEvent;
- (nullable id<MTLSharedEvent>)newSharedEvent;
- (nullable id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                                        error:(NSError* _Nullable __autoreleasing* _Nullable)error
    API_AVAILABLE(macos(15.0), ios(18.0));
- (nullable id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                          error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (nullable id<MTLCounterSampleBuffer>)newCounterSampleBufferWithDescriptor:(MTLCounterSampleBufferDescriptor*)descriptor
                                                                      error:
                                                                          (NSError* _Nullable __autoreleasing* _Nullable)error;
@end

FOUNDATION_EXPORT id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void) NS_RETURNS_RETAINED;
FOUNDATION_EXPORT NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) NS_RETURNS_RETAINED METAL_HOST_AVAILABLE_IOS(18.0);

// --- capture ----------------------------------------------------------------------------------------------------------------

typedef NS_ENUM(NSInteger, MTLCaptureDestination) {
  MTLCaptureDestinationDeveloperTools = 1,
  MTLCaptureDestinationGPUTraceDocument = 2
};
FOUNDATION_EXPORT NSErrorDomain const MTLCaptureErrorDomain;
typedef NS_ENUM(NSInteger, MTLCaptureError) {
  MTLCaptureErrorNotSupported = 1,
  MTLCaptureErrorAlreadyCapturing = 2,
  MTLCaptureErrorInvalidDescriptor = 3
};

@protocol MTLCaptureScope <NSObject>
@property(nullable, copy, atomic) NSString* label;
@property(nonatomic, readonly) id<MTLDevice> device;
@property(nullable, nonatomic, readonly) id<MTLCommandQueue> commandQueue;
- (void)beginScope;
- (void)endScope;
@end

@interface MTLCaptureDescriptor : NSObject <NSCopying>
@property(nullable, strong, nonatomic) id captureObject;
@property(nonatomic) MTLCaptureDestination destination;
@property(nullable, copy, nonatomic) NSURL* outputURL;
@end

@interface MTLCaptureManager : NSObject
+ (MTLCaptureManager*)sharedCaptureManager;
- (id<MTLCaptureScope>)newCaptureScopeWithDevice:(id<MTLDevice>)device;
- (id<MTLCaptureScope>)newCaptureScopeWithCommandQueue:(id<MTLCommandQueue>)queue;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (void)stopCapture;
@property(nullable, strong, atomic) id<MTLCaptureScope> defaultCaptureScope;
@property(readonly) BOOL isCapturing;
@end

NS_ASSUME_NONNULL_END
