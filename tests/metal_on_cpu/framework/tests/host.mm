// An ordinary Metal program: nothing in it knows where it runs. It multiplies a matrix by vectors with several command buffers
// in flight, as an inference engine does, and goes through the ways in which a call can fail.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <cmath>
#include <cstdio>
#include <vector>

static NSString* const kSource =
    @"#include <metal_stdlib>\n"
     "using namespace metal;\n"
     "constant uint kRelu [[function_constant(0)]];\n"
     "kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],\n"
     "                device float* sum [[buffer(2)]], uint i [[thread_position_in_grid]]) { sum[i] = a[i] + b[i]; }\n"
     "kernel void gemv(device const float* w [[buffer(0)]], device const float* x [[buffer(1)]],\n"
     "                 device float* y [[buffer(2)]], constant uint& k [[buffer(3)]],\n"
     "                 uint n [[thread_position_in_grid]]) {\n"
     "  float sum = 0;\n"
     "  for (uint i = 0; i < k; ++i) sum += w[n * k + i] * x[i];\n"
     "  y[n] = kRelu != 0 ? max(sum, 0.0f) : sum;\n"
     "}\n";

static int failures = 0;

static void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("failed: %s\n", what);
}

@interface Matrix : NSObject
@property(nonatomic, readonly) NSUInteger rows;
@property(nonatomic, readonly) NSUInteger columns;
- (instancetype)initWithDevice:(id<MTLDevice>)device rows:(NSUInteger)rows columns:(NSUInteger)columns;
- (float)at:(NSUInteger)row column:(NSUInteger)column;
- (void)encodeTo:(id<MTLComputeCommandEncoder>)encoder
        pipeline:(id<MTLComputePipelineState>)pipeline
               x:(id<MTLBuffer>)x
               y:(id<MTLBuffer>)y;
@end

@implementation Matrix {
  id<MTLBuffer> _weights;
}
- (instancetype)initWithDevice:(id<MTLDevice>)device rows:(NSUInteger)rows columns:(NSUInteger)columns {
  if ((self = [super init])) {
    _rows = rows;
    _columns = columns;
    std::vector<float> values(rows * columns);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    _weights = [device newBufferWithBytes:values.data()
                                   length:values.size() * sizeof(float)
                                  options:MTLResourceStorageModeShared];
    _weights.label = @"weights";
  }
  return self;
}
- (float)at:(NSUInteger)row column:(NSUInteger)column {
  return static_cast<float*>(_weights.contents)[row * _columns + column];
}
- (void)encodeTo:(id<MTLComputeCommandEncoder>)encoder
        pipeline:(id<MTLComputePipelineState>)pipeline
               x:(id<MTLBuffer>)x
               y:(id<MTLBuffer>)y {
  const uint32_t k = static_cast<uint32_t>(_columns);
  [encoder setComputePipelineState:pipeline];
  [encoder setBuffer:_weights offset:0 atIndex:0];
  [encoder setBuffer:x offset:0 atIndex:1];
  [encoder setBuffer:y offset:0 atIndex:2];
  [encoder setBytes:&k length:sizeof k atIndex:3];
  const NSUInteger width = pipeline.threadExecutionWidth;
  [encoder dispatchThreads:MTLSizeMake(_rows, 1, 1) threadsPerThreadgroup:MTLSizeMake(width, 1, 1)];
}
@end

static void run_add(id<MTLDevice> device, id<MTLLibrary> library, id<MTLCommandQueue> queue) {
  NSError* error = nil;
  id<MTLFunction> function = [library newFunctionWithName:@"add"];
  id<MTLComputePipelineState> pipeline = [device newComputePipelineStateWithFunction:function error:&error];
  expect(pipeline != nil && error == nil, "the pipeline of add");
  const NSUInteger count = 256;
  id<MTLBuffer> a = [device newBufferWithLength:count * 4 options:MTLResourceStorageModeShared];
  id<MTLBuffer> b = [device newBufferWithLength:count * 4 options:MTLResourceStorageModeShared];
  id<MTLBuffer> sum = [device newBufferWithLength:count * 4 options:MTLResourceStorageModeShared];
  for (NSUInteger i = 0; i < count; ++i) {
    static_cast<float*>(a.contents)[i] = static_cast<float>(i);
    static_cast<float*>(b.contents)[i] = 2 * static_cast<float>(i);
  }
  id<MTLCommandBuffer> commands = [queue commandBuffer];
  id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
  [encoder setComputePipelineState:pipeline];
  [encoder setBuffer:a offset:0 atIndex:0];
  [encoder setBuffer:b offset:0 atIndex:1];
  [encoder setBuffer:sum offset:0 atIndex:2];
  [encoder dispatchThreadgroups:MTLSizeMake(count / 64, 1, 1) threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
  [encoder endEncoding];
  [commands commit];
  [commands waitUntilCompleted];
  expect(commands.status == MTLCommandBufferStatusCompleted, "add completes");
  expect(commands.GPUEndTime >= commands.GPUStartTime, "time goes forward");
  for (NSUInteger i = 0; i < count; ++i) {
    expect(static_cast<float*>(sum.contents)[i] == 3 * static_cast<float>(i), "the sums of add");
  }
}

static id<MTLComputePipelineState> gemv_pipeline(id<MTLDevice> device, id<MTLLibrary> library, bool relu) {
  MTLFunctionConstantValues* constants = [[MTLFunctionConstantValues alloc] init];
  const uint32_t value = relu ? 1 : 0;
  [constants setConstantValue:&value type:MTLDataTypeUInt atIndex:0];
  NSError* error = nil;
  id<MTLFunction> function = [library newFunctionWithName:@"gemv" constantValues:constants error:&error];
  expect(function != nil, "the function gemv");
  return [device newComputePipelineStateWithFunction:function error:&error];
}

// At most `kDepth` command buffers are in flight: a semaphore lets the next begin when a completion handler has run.
static void run_in_flight(id<MTLDevice> device, id<MTLLibrary> library, id<MTLCommandQueue> queue) {
  constexpr int kSteps = 12;
  constexpr long kDepth = 3;
  Matrix* matrix = [[Matrix alloc] initWithDevice:device rows:45 columns:37];
  id<MTLComputePipelineState> pipeline = gemv_pipeline(device, library, true);
  id<MTLSharedEvent> event = [device newSharedEvent];
  dispatch_semaphore_t slots = dispatch_semaphore_create(kDepth);
  NSMutableArray<id<MTLBuffer>>* outputs = [NSMutableArray array];
  NSMutableArray<NSNumber*>* finished = [NSMutableArray array];
  NSLock* lock = [[NSLock alloc] init];
  id<MTLCommandBuffer> last = nil;
  for (int step = 0; step < kSteps; ++step) {
    @autoreleasepool {
      dispatch_semaphore_wait(slots, DISPATCH_TIME_FOREVER);
      id<MTLBuffer> x = [device newBufferWithLength:matrix.columns * 4 options:MTLResourceStorageModeShared];
      id<MTLBuffer> y = [device newBufferWithLength:matrix.rows * 4 options:MTLResourceStorageModeShared];
      for (NSUInteger i = 0; i < matrix.columns; ++i) static_cast<float*>(x.contents)[i] = static_cast<float>(step + 1);
      [outputs addObject:y];
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      commands.label = [NSString stringWithFormat:@"step %d", step];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      [matrix encodeTo:encoder pipeline:pipeline x:x y:y];
      [encoder endEncoding];
      [commands encodeSignalEvent:event value:static_cast<uint64_t>(step) + 1];
      [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
        expect(done.error == nil, "a step ends without error");
        [lock lock];
        [finished addObject:@(step)];
        [lock unlock];
        dispatch_semaphore_signal(slots);
      }];
      [commands commit];
      last = commands;
    }
  }
  [last waitUntilCompleted];
  expect(event.signaledValue == kSteps, "the event counts the steps");
  expect(finished.count == kSteps, "every handler has run");
  for (NSUInteger i = 0; i < finished.count; ++i) expect(finished[i].intValue == static_cast<int>(i), "handlers run in order");
  for (NSUInteger step = 0; step < outputs.count; ++step) {
    for (NSUInteger n = 0; n < matrix.rows; ++n) {
      float want = 0;
      for (NSUInteger k = 0; k < matrix.columns; ++k) want += [matrix at:n column:k] * static_cast<float>(step + 1);
      const float found = static_cast<float*>(outputs[step].contents)[n];
      expect(std::fabs(found - std::fmax(want, 0.0f)) < 1e-3f, "the products of gemv");
    }
  }
}

// One queue's work waits for another's, and a listener hears of it.
static void run_events(id<MTLDevice> device) {
  id<MTLCommandQueue> first = [device newCommandQueue], second = [device newCommandQueue];
  id<MTLSharedEvent> event = [device newSharedEvent];
  id<MTLBuffer> buffer = [device newBufferWithLength:64 options:MTLResourceStorageModeShared];
  dispatch_queue_t notices = dispatch_queue_create("notices", DISPATCH_QUEUE_SERIAL);
  MTLSharedEventListener* listener = [[MTLSharedEventListener alloc] initWithDispatchQueue:notices];
  dispatch_semaphore_t heard = dispatch_semaphore_create(0);
  [event notifyListener:listener
                atValue:2
                  block:^(id<MTLSharedEvent>, uint64_t) {
                    dispatch_semaphore_signal(heard);
                  }];
  id<MTLCommandBuffer> waits = [second commandBuffer];
  [waits encodeWaitForEvent:event value:1];
  id<MTLBlitCommandEncoder> after = [waits blitCommandEncoder];
  [after copyFromBuffer:buffer sourceOffset:0 toBuffer:buffer destinationOffset:32 size:16];
  [after endEncoding];
  [waits encodeSignalEvent:event value:2];
  [waits commit];
  id<MTLCommandBuffer> signals = [first commandBuffer];
  id<MTLBlitCommandEncoder> before = [signals blitCommandEncoder];
  [before fillBuffer:buffer range:NSMakeRange(0, 16) value:7];
  [before endEncoding];
  [signals encodeSignalEvent:event value:1];
  [signals commit];
  [waits waitUntilCompleted];
  expect(static_cast<unsigned char*>(buffer.contents)[40] == 7, "the copy comes after the fill");
  expect(dispatch_semaphore_wait(heard, dispatch_time(DISPATCH_TIME_NOW, 5 * NSEC_PER_SEC)) == 0, "the listener hears");
}

static void run_errors(id<MTLDevice> device, id<MTLLibrary> library) {
  NSError* error = nil;
  expect([device newLibraryWithSource:@"kernel void broken( {" options:nil error:&error] == nil, "broken source");
  expect([error.domain isEqualToString:MTLLibraryErrorDomain] && error.code == MTLLibraryErrorCompileFailure, "its error");
  expect(error.localizedDescription.length != 0, "its message");
  expect([library newFunctionWithName:@"absent"] == nil, "a function that is not there");
  NSURL* url = [NSURL fileURLWithPath:[NSTemporaryDirectory() stringByAppendingPathComponent:@"absent.metallib"]];
  error = nil;
  expect([device newLibraryWithURL:url error:&error] == nil && error.code == MTLLibraryErrorFileNotFound, "a missing file");
}

int main() {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device == nil || ![device supportsFamily:MTLGPUFamilyApple7]) return 77;
    NSError* error = nil;
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.languageVersion = MTLLanguageVersion3_0;
    if (@available(macOS 15.0, *))
      options.mathMode = MTLMathModeSafe;
    else
      options.fastMathEnabled = NO;
    id<MTLLibrary> library = [device newLibraryWithSource:kSource options:options error:&error];
    if (library == nil) {
      NSLog(@"%@", error);
      return 1;
    }
    expect(library.functionNames.count == 2, "the names of the library");
    id<MTLCommandQueue> queue = [device newCommandQueueWithMaxCommandBufferCount:8];
    run_add(device, library, queue);
    run_in_flight(device, library, queue);
    run_events(device);
    run_errors(device, library);
  }
  std::printf(failures == 0 ? "all is well\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
