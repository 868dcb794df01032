// Errors, URLs, the process and its files.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "foundation/text.h"
#include "metal/checks.h"
#include "runtime/object.h"

using metal_framework::string;
using metal_framework::text;

NSErrorDomain const NSCocoaErrorDomain = @"NSCocoaErrorDomain";
NSErrorDomain const NSPOSIXErrorDomain = @"NSPOSIXErrorDomain";
NSErrorUserInfoKey const NSLocalizedDescriptionKey = @"NSLocalizedDescription";
NSErrorUserInfoKey const NSLocalizedFailureReasonErrorKey = @"NSLocalizedFailureReason";
NSErrorUserInfoKey const NSUnderlyingErrorKey = @"NSUnderlyingError";

@implementation NSError
+ (instancetype)errorWithDomain:(NSErrorDomain)domain code:(NSInteger)code userInfo:(NSDictionary*)info {
  return [[self alloc] initWithDomain:domain code:code userInfo:info];
}
- (instancetype)initWithDomain:(NSErrorDomain)domain code:(NSInteger)code userInfo:(NSDictionary*)info {
  _domain = [domain copy];
  _code = code;
  _userInfo = info == nil ? @{} : [info copy];
  return self;
}
- (NSString*)localizedDescription {
  NSString* given = _userInfo[NSLocalizedDescriptionKey];
  if (given != nil) return given;
  return [NSString stringWithFormat:@"The operation couldn't be completed. (%@ error %ld.)", _domain, _code];
}
- (NSString*)localizedFailureReason {
  return _userInfo[NSLocalizedFailureReasonErrorKey];
}
- (NSString*)description {
  return [NSString stringWithFormat:@"Error Domain=%@ Code=%ld \"%@\"", _domain, _code, self.localizedDescription];
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end

@implementation NSURL {
  std::string scheme;  // "file", "https", or empty for a relative reference
  std::string rest;    // the path of a file; else all behind "scheme:"
}
+ (NSURL*)fileURLWithPath:(NSString*)path {
  return [[NSURL alloc] initFileURLWithPath:path];
}
+ (NSURL*)fileURLWithPath:(NSString*)path isDirectory:(BOOL)directory {
  return [[NSURL alloc] initFileURLWithPath:path];
}
+ (instancetype)URLWithString:(NSString*)given {
  return [[self alloc] initWithString:given];
}
- (instancetype)initFileURLWithPath:(NSString*)path {
  scheme = "file";
  rest = text(path);
  if (!rest.empty() && rest[0] != '/') {
    char folder[4096];
    if (getcwd(folder, sizeof folder) != nullptr) rest = std::string(folder) + "/" + rest;
  }
  return self;
}
- (instancetype)initWithString:(NSString*)given {
  const std::string all = text(given);
  const size_t colon = all.find(':');
  if (colon != std::string::npos) scheme = all.substr(0, colon);
  rest = colon == std::string::npos ? all : all.substr(colon + 1);
  if (scheme == "file" && rest.starts_with("//")) rest = rest.substr(2);
  return self;
}
- (NSURL*)URLByAppendingPathComponent:(NSString*)name {
  NSURL* made = [[NSURL alloc] init];
  made->scheme = scheme;
  made->rest = rest.ends_with('/') ? rest + text(name) : rest + "/" + text(name);
  return made;
}
- (NSString*)absoluteString {
  if (scheme.empty()) return string(rest);
  return string(scheme + (scheme == "file" ? "://" : ":") + rest);
}
- (NSString*)path {
  return string(rest);
}
- (NSString*)lastPathComponent {
  return string(rest).lastPathComponent;
}
- (BOOL)isFileURL {
  return scheme == "file";
}
- (const char*)fileSystemRepresentation {
  return rest.c_str();
}
- (NSString*)description {
  return self.absoluteString;
}
- (id)copyWithZone:(NSZone*)zone {
  return self;
}
@end

@implementation NSProcessInfo
+ (NSProcessInfo*)processInfo {
  static NSProcessInfo* info;
  static std::once_flag once;
  std::call_once(once, [] {
    info = [[NSProcessInfo alloc] init];
    metal_framework::make_immortal(info);
  });
  return info;
}
- (NSDictionary*)environment {
  NSMutableDictionary* all = [NSMutableDictionary dictionary];
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* const equals = std::strchr(*entry, '=');
    if (equals != nullptr) all[string(std::string(*entry, static_cast<size_t>(equals - *entry)))] = string(equals + 1);
  }
  return all;
}
- (NSString*)processName {
  return string(program_invocation_short_name);
}
- (int)processIdentifier {
  return getpid();
}
- (NSUInteger)processorCount {
  return static_cast<NSUInteger>(sysconf(_SC_NPROCESSORS_CONF));
}
- (NSUInteger)activeProcessorCount {
  return std::thread::hardware_concurrency();
}
- (unsigned long long)physicalMemory {
  return static_cast<unsigned long long>(sysconf(_SC_PHYS_PAGES)) * static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
}
- (NSTimeInterval)systemUptime {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// The first system with everything that the headers declare.
- (NSOperatingSystemVersion)operatingSystemVersion {
  return {15, 0, 0};
}
- (NSString*)operatingSystemVersionString {
  return metal_framework::string(metal_framework::os_version());
}
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version {
  return version.majorVersion < 15 || (version.majorVersion == 15 && version.minorVersion == 0 && version.patchVersion == 0);
}
@end

@implementation NSFileManager
+ (NSFileManager*)defaultManager {
  static NSFileManager* manager;
  static std::once_flag once;
  std::call_once(once, [] {
    manager = [[NSFileManager alloc] init];
    metal_framework::make_immortal(manager);
  });
  return manager;
}
- (BOOL)fileExistsAtPath:(NSString*)path {
  struct stat status;
  return stat(path.UTF8String, &status) == 0;
}
- (BOOL)removeItemAtPath:(NSString*)path error:(NSError* __autoreleasing*)error {
  if (std::remove(path.UTF8String) == 0) return YES;
  if (error) *error = metal_framework::error(NSPOSIXErrorDomain, errno, text(path) + ": " + std::strerror(errno));
  return NO;
}
- (BOOL)removeItemAtURL:(NSURL*)url error:(NSError* __autoreleasing*)error {
  return [self removeItemAtPath:url.path error:error];
}
@end

NSArray<NSString*>* NSSearchPathForDirectoriesInDomains(NSSearchPathDirectory directory, NSSearchPathDomainMask domains,
                                                        BOOL expand) {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || directory != NSCachesDirectory || domains != NSUserDomainMask) return @[];
  return @[ metal_framework::string(std::string(home) + "/Library/Caches") ];
}

NSString* NSTemporaryDirectory(void) {
  const char* const folder = std::getenv("TMPDIR");
  return string(std::string(folder == nullptr ? "/tmp" : folder) + "/");
}

@implementation NSLock {
  std::mutex mutex;
}
- (void)lock {
  mutex.lock();
}
- (void)unlock {
  mutex.unlock();
}
- (BOOL)tryLock {
  return mutex.try_lock();
}
@end
