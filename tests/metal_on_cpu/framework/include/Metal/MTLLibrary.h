// Libraries, functions and their constants, pipelines, archives.
#pragma once

#include <Metal/MTLResource.h>

NS_ASSUME_NONNULL_BEGIN

typedef NS_ENUM(NSUInteger, MTLDataType) { MTLDataTypeUInt = 33, MTLDataTypeBool = 53 };

typedef NS_ENUM(NSUInteger, MTLLanguageVersion) {
  MTLLanguageVersion3_1 = (3 << 16) + 1,
  MTLLanguageVersion3_2 = (3 << 16) + 2
};
typedef NS_ENUM(NSInteger, MTLMathMode) { MTLMathModeSafe = 0, MTLMathModeRelaxed = 1, MTLMathModeFast = 2 };
typedef NS_ENUM(NSInteger, MTLMathFloatingPointFunctions) {
  MTLMathFloatingPointFunctionsFast = 0,
  MTLMathFloatingPointFunctionsPrecise = 1
};

@interface MTLCompileOptions : NSObject
@property(nonatomic) BOOL fastMathEnabled;
@property(nonatomic) MTLMathMode mathMode API_AVAILABLE(macos(15.0), ios(18.0));
@property(nonatomic) MTLMathFloatingPointFunctions mathFloatingPointFunctions API_AVAILABLE(macos(15.0), ios(18.0));
@property(nonatomic) MTLLanguageVersion languageVersion;
@end

FOUNDATION_EXPORT NSErrorDomain const MTLLibraryErrorDomain;
typedef NS_ENUM(NSUInteger, MTLLibraryError) {
  MTLLibraryErrorUnsupported = 1,
  MTLLibraryErrorInternal = 2,
  MTLLibraryErrorCompileFailure = 3,
  MTLLibraryErrorFunctionNotFound = 5
};

@interface MTLFunctionConstantValues : NSObject
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index;
@end

@protocol MTLFunction <NSObject>
@property(readonly) NSString* name;
@end

@protocol MTLLibrary <NSObject>
@property(nullable, copy, atomic) NSString* label;
@property(readonly) NSArray<NSString*>* functionNames;
- (nullable id<MTLFunction>)newFunctionWithName:(NSString*)name
                                 constantValues:(MTLFunctionConstantValues*)values
                                          error:(NSError* _Nullable __autoreleasing* _Nullable)error;
@end

typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) { MTLPipelineOptionNone = 0, MTLPipelineOptionFailOnBinaryArchiveMiss = 4 };

@class MTLComputePipelineReflection;
typedef MTLComputePipelineReflection* MTLAutoreleasedComputePipelineReflection;

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@end

@protocol MTLBinaryArchive;

@interface MTLComputePipelineDescriptor : NSObject
@property(nullable, copy, nonatomic) NSString* label;
@property(nullable, strong, nonatomic) id<MTLFunction> computeFunction;
@property(nullable, copy, nonatomic) NSArray<id<MTLBinaryArchive>>* binaryArchives;
@end

FOUNDATION_EXPORT NSErrorDomain const MTLBinaryArchiveDomain;
typedef NS_ENUM(NSUInteger, MTLBinaryArchiveError) {
  MTLBinaryArchiveErrorInvalidFile = 1,
  MTLBinaryArchiveErrorUnexpectedElement = 2,
  MTLBinaryArchiveErrorCompilationFailure = 3,
  MTLBinaryArchiveErrorInternalError = 4
};

@interface MTLBinaryArchiveDescriptor : NSObject
@property(nullable, copy, nonatomic) NSURL* url;
@end

@protocol MTLBinaryArchive <NSObject>
@property(nullable, copy, atomic) NSString* label;
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                            error:(NSError* _Nullable __autoreleasing* _Nullable)error;
- (BOOL)serializeToURL:(NSURL*)url error:(NSError* _Nullable __autoreleasing* _Nullable)error;
@end

NS_ASSUME_NONNULL_END
