#include "metal/objects.h"

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
@end

@implementation MTLFunctionConstantValues
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  if (index > UINT16_MAX) return find("out-of-range", "function constants have indices below 65536");
  const auto key = static_cast<uint32_t>(index);
  if (type == MTLDataTypeBool) {
    constants[key] = *static_cast<const bool*>(value);
  } else if (type == MTLDataTypeUInt) {
    constants[key] = uint64_t{*static_cast<const uint32_t*>(value)};
  } else {
    find("constant-type", "function constants of type " + std::to_string(type) + " are not modeled");
  }
}
@end

@implementation MOCFunction
- (NSString*)name {
  return string(name);
}
@end

@implementation MOCLibrary
@synthesize label;
- (NSArray*)functionNames {
  return metal_framework::array(library->names());
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError* __autoreleasing*)error {
  std::string why;
  auto function = library->function(text(name), values->constants, why);
  if (function == nullptr) {
    metal_framework::set(error, metal_framework::error(MTLLibraryErrorDomain, MTLLibraryErrorFunctionNotFound, why));
    return nil;
  }
  MOCFunction* made = [[MOCFunction alloc] init];
  made->function = std::move(function);
  made->name = text(name);
  made->identity = identity + "\n" + made->name;
  for (const auto& [index, value] : values->constants) {
    made->identity += "\n" + std::to_string(index) + "=" + std::to_string(value.index()) + ":";
    std::visit([&](auto v) { made->identity += std::to_string(v); }, value);
  }
  return made;
}
@end
