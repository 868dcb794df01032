#include <bit>
#include <cstring>

#include "metal/objects.h"

using metal_framework::ConstantValue;
using metal_framework::find;
using metal_framework::string;
using metal_framework::text;

NSErrorDomain const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";

@implementation MTLCompileOptions
- (instancetype)init {
  _fastMathEnabled = YES;
  _mathMode = MTLMathModeFast;
  _languageVersion = MTLLanguageVersion3_2;
  return self;
}
- (void)setFastMathEnabled:(BOOL)on {
  _fastMathEnabled = on;
  _mathMode = on ? MTLMathModeFast : MTLMathModeSafe;
  _mathFloatingPointFunctions = on ? MTLMathFloatingPointFunctionsFast : MTLMathFloatingPointFunctionsPrecise;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCompileOptions* made = [[MTLCompileOptions alloc] init];
  made.preprocessorMacros = self.preprocessorMacros;
  made.fastMathEnabled = self.fastMathEnabled;
  made.mathMode = self.mathMode;
  made.mathFloatingPointFunctions = self.mathFloatingPointFunctions;
  made.languageVersion = self.languageVersion;
  made.preserveInvariance = self.preserveInvariance;
  made.optimizationLevel = self.optimizationLevel;
  made.maxTotalThreadsPerThreadgroup = self.maxTotalThreadsPerThreadgroup;
  return made;
}
@end

namespace metal_framework {

std::optional<CompileOptions> compile_options(MTLCompileOptions* options) {
  CompileOptions made;
  if (options == nil) return made;
  for (NSString* name in options.preprocessorMacros) {
    id value = options.preprocessorMacros[name];
    if (![value isKindOfClass:[NSString class]] && ![value isKindOfClass:[NSNumber class]]) {
      find("wrong-macro", "preprocessor macro " + text(name) + " is neither a string nor a number");
      return std::nullopt;
    }
    made.macros.emplace_back(text(name), text([value description]));
  }
  made.language_major = static_cast<int>(options.languageVersion >> 16);
  made.language_minor = static_cast<int>(options.languageVersion & 0xFFFF);
  made.fast_math = options.mathMode != MTLMathModeSafe;
  made.fast_functions = options.mathFloatingPointFunctions != MTLMathFloatingPointFunctionsPrecise;
  const int version = made.language_major * 100 + made.language_minor;
  if (version < 101 || version > 400) {
    find("language-version", "language version " + std::to_string(made.language_major) + "." +
                                 std::to_string(made.language_minor) + " is none that MTLLanguageVersion names");
    return std::nullopt;
  }
  return made;
}

namespace {

template <class T>
T read(const void* value) {
  T copy;
  std::memcpy(&copy, value, sizeof copy);
  return copy;
}

// IEEE binary16.
double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent == 31  ? (mantissa == 0 ? __builtin_inf() : __builtin_nan(""))
                           : exponent == 0 ? mantissa * 0x1p-24
                                           : (1024 + mantissa) * __builtin_ldexp(1.0, exponent - 25);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

// The bytes of a constant, or 0 for a type that no constant has here.
size_t size_of(MTLDataType type) {
  switch (type) {
    case MTLDataTypeBool:
    case MTLDataTypeChar:
    case MTLDataTypeUChar:
      return 1;
    case MTLDataTypeShort:
    case MTLDataTypeUShort:
    case MTLDataTypeHalf:
    case MTLDataTypeBFloat:
      return 2;
    case MTLDataTypeInt:
    case MTLDataTypeUInt:
    case MTLDataTypeFloat:
      return 4;
    case MTLDataTypeLong:
    case MTLDataTypeULong:
      return 8;
    default:
      return 0;
  }
}

ConstantValue value_of(const void* value, MTLDataType type) {
  switch (type) {
    case MTLDataTypeBool:
      return read<uint8_t>(value) != 0;
    case MTLDataTypeChar:
      return int64_t{read<int8_t>(value)};
    case MTLDataTypeShort:
      return int64_t{read<int16_t>(value)};
    case MTLDataTypeInt:
      return int64_t{read<int32_t>(value)};
    case MTLDataTypeLong:
      return read<int64_t>(value);
    case MTLDataTypeUChar:
      return uint64_t{read<uint8_t>(value)};
    case MTLDataTypeUShort:
      return uint64_t{read<uint16_t>(value)};
    case MTLDataTypeUInt:
      return uint64_t{read<uint32_t>(value)};
    case MTLDataTypeULong:
      return read<uint64_t>(value);
    case MTLDataTypeHalf:
      return half_value(read<uint16_t>(value));
    case MTLDataTypeBFloat:
      return double{std::bit_cast<float>(uint32_t{read<uint16_t>(value)} << 16)};
    default:
      return double{read<float>(value)};
  }
}

MTLDataType type_named(const std::string& name) {
  static const std::map<std::string, MTLDataType> types = {{"bool", MTLDataTypeBool},
                                                           {"char", MTLDataTypeChar},
                                                           {"int8_t", MTLDataTypeChar},
                                                           {"uchar", MTLDataTypeUChar},
                                                           {"uint8_t", MTLDataTypeUChar},
                                                           {"unsigned char", MTLDataTypeUChar},
                                                           {"short", MTLDataTypeShort},
                                                           {"int16_t", MTLDataTypeShort},
                                                           {"ushort", MTLDataTypeUShort},
                                                           {"uint16_t", MTLDataTypeUShort},
                                                           {"unsigned short", MTLDataTypeUShort},
                                                           {"int", MTLDataTypeInt},
                                                           {"int32_t", MTLDataTypeInt},
                                                           {"uint", MTLDataTypeUInt},
                                                           {"uint32_t", MTLDataTypeUInt},
                                                           {"unsigned int", MTLDataTypeUInt},
                                                           {"unsigned", MTLDataTypeUInt},
                                                           {"long", MTLDataTypeLong},
                                                           {"int64_t", MTLDataTypeLong},
                                                           {"ulong", MTLDataTypeULong},
                                                           {"uint64_t", MTLDataTypeULong},
                                                           {"unsigned long", MTLDataTypeULong},
                                                           {"size_t", MTLDataTypeULong},
                                                           {"half", MTLDataTypeHalf},
                                                           {"bfloat", MTLDataTypeBFloat},
                                                           {"float", MTLDataTypeFloat}};
  const auto entry = types.find(name);
  return entry == types.end() ? MTLDataTypeNone : entry->second;
}

std::string identity_of(const Constants& constants) {
  std::string all;
  const auto add = [&](const std::string& key, const ConstantValue& value) {
    std::visit([&](auto v) { all += "\n" + key + "=" + std::to_string(value.index()) + ":" + std::to_string(v); }, value);
  };
  for (const auto& [index, value] : constants.by_index) add(std::to_string(index), value);
  for (const auto& [name, value] : constants.by_name) add(name, value);
  return all;
}

}  // namespace
}  // namespace metal_framework

@implementation MTLFunctionConstantValues
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  [self setConstantValues:value type:type withRange:NSMakeRange(index, 1)];
}
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range {
  const size_t size = metal_framework::size_of(type);
  if (size == 0) return find("constant-type", "function constants of type " + std::to_string(type) + " are not modeled");
  if (NSMaxRange(range) > 65536) return find("out-of-range", "function constants have indices below 65536");
  for (NSUInteger i = 0; i < range.length; ++i) {
    constants.by_index[static_cast<uint32_t>(range.location + i)] =
        metal_framework::value_of(static_cast<const char*>(values) + i * size, type);
  }
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type withName:(NSString*)name {
  if (metal_framework::size_of(type) == 0) {
    return find("constant-type", "function constants of type " + std::to_string(type) + " are not modeled");
  }
  constants.by_name[text(name)] = metal_framework::value_of(value, type);
}
- (void)reset {
  constants = {};
}
- (id)copyWithZone:(NSZone*)zone {
  MTLFunctionConstantValues* made = [[MTLFunctionConstantValues alloc] init];
  made->constants = constants;
  return made;
}
@end

@implementation MTLFunctionConstant {
  metal_framework::FunctionConstant constant;
}
- (instancetype)initWithConstant:(const metal_framework::FunctionConstant&)given {
  constant = given;
  return self;
}
- (NSString*)name {
  return string(constant.name);
}
- (MTLDataType)type {
  return metal_framework::type_named(constant.type);
}
- (NSUInteger)index {
  return constant.index;
}
- (BOOL)required {
  return constant.required;
}
@end

@implementation MOCFunction
@synthesize label;
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (MTLFunctionType)functionType {
  return MTLFunctionTypeKernel;
}
- (NSString*)name {
  return string(name);
}
- (NSDictionary*)functionConstantsDictionary {
  NSMutableDictionary* all = [NSMutableDictionary dictionary];
  for (const auto& constant : declared) {
    all[string(constant.name)] = [[MTLFunctionConstant alloc] initWithConstant:constant];
  }
  return all;
}
@end

@implementation MOCLibrary
@synthesize label;
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (NSArray*)functionNames {
  NSMutableArray* all = [NSMutableArray array];
  for (const std::string& name : library->names()) [all addObject:string(name)];
  return all;
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
  return [self make:name constants:{} error:nullptr];
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError* __autoreleasing*)error {
  return [self make:name constants:values == nil ? metal_framework::Constants{} : values->constants error:error];
}
- (void)newFunctionWithName:(NSString*)name
             constantValues:(MTLFunctionConstantValues*)values
          completionHandler:(void (^)(id<MTLFunction>, NSError*))handler {
  dispatch_async(dispatch_get_global_queue(QOS_CLASS_DEFAULT, 0), ^{
    NSError* error = nil;
    id<MTLFunction> function = [self newFunctionWithName:name constantValues:values error:&error];
    handler(function, error);
  });
}
- (MOCFunction*)make:(NSString*)name
           constants:(const metal_framework::Constants&)constants
               error:(NSError* __autoreleasing*)error {
  std::string why;
  auto function = library->function(text(name), constants, why);
  if (function == nullptr) {
    if (error) *error = metal_framework::error(MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound, why);
    return nil;
  }
  MOCFunction* made = [[MOCFunction alloc] init];
  made->function = std::move(function);
  made->name = text(name);
  made->declared = library->constants(made->name);
  made->identity = identity + "\n" + made->name + metal_framework::identity_of(constants);
  return made;
}
@end
