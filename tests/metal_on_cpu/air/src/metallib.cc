#include "metallib.h"

#include <fcntl.h>
#include <llvm/ADT/ArrayRef.h>
#include <llvm/Support/SHA256.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

namespace metal_on_cpu::air {
namespace {

using Kind = ReadError::Kind;

constexpr uint64_t kHeader = 0x58;
constexpr uint64_t kWrapper = 20;  // bytes of LLVM's bitcode wrapper
constexpr uint32_t kWrapperMagic = 0x0b17c0de, kBitcodeMagic = 0xdec04342;

struct Range {
  uint64_t offset = 0, size = 0;
  uint64_t end() const { return offset + size; }
};

// The part [offset, offset + size) of `whole`, if it is one; no sum overflows.
bool within(uint64_t offset, uint64_t size, uint64_t whole) { return size <= whole && offset <= whole - size; }

// Reads numbers from [at, end). The caller checks has() first.
class Cursor {
 public:
  Cursor(Bytes bytes, uint64_t at, uint64_t end) : bytes_(bytes), at_(at), end_(end) {}
  bool has(uint64_t n) const { return n <= end_ - at_; }
  uint64_t at() const { return at_; }
  template <class T>
  T number() {
    T value = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes_[at_ + i]) << (8 * i)));
    at_ += sizeof(T);
    return value;
  }
  Bytes take(uint64_t n) {
    const Bytes part = bytes_.subspan(at_, n);
    at_ += n;
    return part;
  }

 private:
  Bytes bytes_;
  uint64_t at_, end_;
};

ReadError error(Kind kind, uint64_t offset, std::string message) { return {kind, offset, std::move(message)}; }

std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// One entry of the function list, between its size and its end.
class Entry {
 public:
  Entry(Bytes bytes, uint64_t begin, uint64_t end) : cursor_(bytes, begin, end), begin_(begin) {}

  // module_offset: relative to the bitcode section.
  std::optional<ReadError> read(Function& f, uint64_t& module_offset) {
    for (;;) {
      const uint64_t at = cursor_.at();
      if (!cursor_.has(4)) return error(Kind::kMalformed, at, "expected a tag or ENDT, found the end of a function's entry");
      const std::string tag = text_of(cursor_.take(4));
      if (tag == "ENDT") break;
      if (!cursor_.has(2)) return error(Kind::kMalformed, at, "tag '" + tag + "' has no length");
      const uint16_t length = cursor_.number<uint16_t>();
      if (!cursor_.has(length)) {
        return error(Kind::kMalformed, at,
                     "tag '" + tag + "' of " + std::to_string(length) + " bytes leaves its function's entry");
      }
      const Bytes payload = cursor_.take(length);
      if (auto wrong = check_length(tag, length, at)) return wrong;
      if (auto wrong = take(tag, payload, f, module_offset, at)) return wrong;
      seen_.insert(tag);
    }
    for (const char* needed : {"NAME", "TYPE", "MDSZ", "OFFT"}) {
      if (!seen_.contains(needed))
        return error(Kind::kMalformed, begin_, std::string("a function's entry has no tag ") + needed);
    }
    return std::nullopt;
  }

 private:
  static std::optional<ReadError> take(const std::string& tag, Bytes payload, Function& f, uint64_t& module_offset,
                                       uint64_t at) {
    Cursor p(payload, 0, payload.size());
    if (tag == "NAME") {
      f.name = text_of(payload.first(payload.size() - 1));
      if (payload.back() != std::byte{0} || f.name.empty() || f.name.find('\0') != std::string::npos) {
        return error(Kind::kMalformed, at, "expected a name ended by its only 0");
      }
    } else if (tag == "TYPE") {
      f.type = static_cast<FunctionType>(p.number<uint8_t>());
      if (f.type > FunctionType::kIntersection) {
        return error(Kind::kMalformed, at, "function type " + std::to_string(static_cast<int>(f.type)) + " is not in 0..6");
      }
    } else if (tag == "HASH") {
      f.hash = payload;
    } else if (tag == "MDSZ") {
      f.size = p.number<uint64_t>();
    } else if (tag == "OFFT") {
      p.take(16);
      module_offset = p.number<uint64_t>();
    } else if (tag == "VERS") {
      f.air_major = p.number<uint16_t>(), f.air_minor = p.number<uint16_t>();
      f.language_major = p.number<uint16_t>(), f.language_minor = p.number<uint16_t>();
    }
    return std::nullopt;
  }
  static std::optional<ReadError> check_length(const std::string& tag, uint16_t length, uint64_t at) {
    const std::pair<const char*, uint16_t> fixed[] = {{"TYPE", 1}, {"HASH", 32}, {"MDSZ", 8}, {"OFFT", 24}, {"VERS", 8}};
    for (const auto& [name, expected] : fixed) {
      if (tag == name && length != expected) {
        return error(Kind::kMalformed, at,
                     "tag " + tag + " has " + std::to_string(length) + " bytes; expected " + std::to_string(expected));
      }
    }
    if (tag == "NAME" && length == 0) return error(Kind::kMalformed, at, "tag NAME is empty");
    return std::nullopt;
  }

  Cursor cursor_;
  uint64_t begin_;
  std::set<std::string> seen_;
};

struct Header {
  Range functions, bitcode;
};

std::variant<Header, ReadError> read_header(Bytes bytes) {
  if (bytes.size() >= 4 ? text_of(bytes.first(4)) != "MTLB"
                        : std::string_view("MTLB").substr(0, bytes.size()) != text_of(bytes)) {
    return error(Kind::kForeign, 0, "expected the magic MTLB of a metallib");
  }
  if (bytes.size() < kHeader) return error(Kind::kTruncated, bytes.size(), "the header has 88 bytes; the file ends within it");
  Cursor c(bytes, 0x10, kHeader);
  const uint64_t size = c.number<uint64_t>();
  if (size != bytes.size()) {
    return error(size > bytes.size() ? Kind::kTruncated : Kind::kMalformed, size > bytes.size() ? bytes.size() : 0x10,
                 "the header says " + std::to_string(size) + " bytes, the file has " + std::to_string(bytes.size()));
  }
  Header header;
  const char* const names[] = {"function list", "public metadata", "private metadata", "bitcode"};
  for (size_t i = 0; i < 4; ++i) {
    const uint64_t at = c.at();
    const Range range{c.number<uint64_t>(), c.number<uint64_t>()};
    if (range.offset < kHeader || !within(range.offset, range.size, bytes.size())) {
      return error(Kind::kMalformed, at, std::string("the section ") + names[i] + " is not inside the file");
    }
    if (i == 0) header.functions = range;
    if (i == 3) header.bitcode = range;
  }
  return header;
}

struct Mapping {
  Mapping(void* p, size_t n) : data(p), bytes(n) {}
  ~Mapping() { munmap(data, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* data;
  size_t bytes;
};

ReadError system_error(const std::string& path, const char* what) {
  return error(Kind::kUnreadable, 0, path + ": cannot " + what + ": " + std::strerror(errno));
}

}  // namespace

std::string ReadError::text() const {
  return kind == Kind::kUnreadable || kind == Kind::kAbsent ? message : "byte " + std::to_string(offset) + ": " + message;
}

std::variant<Metallib, ReadError> Metallib::parse(Bytes bytes) {
  const auto read = read_header(bytes);
  if (const auto* wrong = std::get_if<ReadError>(&read)) return *wrong;
  const Header& header = std::get<Header>(read);
  Metallib library;
  library.bytes_ = bytes;
  const uint64_t end = std::min<uint64_t>(header.functions.end() + 4, bytes.size());
  Cursor list(bytes, header.functions.offset, end);
  if (!list.has(4)) return error(Kind::kMalformed, list.at(), "the function list has no count");
  const uint32_t count = list.number<uint32_t>();
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = list.at();
    if (!list.has(4))
      return error(Kind::kMalformed, at,
                   "the function list says " + std::to_string(count) + " functions, it holds " + std::to_string(i));
    const uint32_t size = list.number<uint32_t>();
    if (size < 4 || !list.has(size - 4))
      return error(Kind::kMalformed, at, "the function's entry of " + std::to_string(size) + " bytes leaves the function list");
    Function f;
    uint64_t offset = 0;
    if (auto wrong = Entry(bytes, at + 4, at + size).read(f, offset)) return *wrong;
    list.take(size - 4);
    if (!within(offset, f.size, header.bitcode.size)) {
      return error(Kind::kMalformed, at,
                   f.name + ": the module of " + std::to_string(f.size) + " bytes at " + std::to_string(offset) +
                       " leaves the bitcode section");
    }
    f.offset = header.bitcode.offset + offset;
    if (!library.by_name_.emplace(f.name, library.functions_.size()).second)
      return error(Kind::kMalformed, at, "two functions are called " + f.name);
    library.functions_.push_back(std::move(f));
  }
  return library;
}

std::variant<Metallib, ReadError> Metallib::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return system_error(path, "open");
  struct stat about{};
  if (fstat(file, &about) != 0) {
    const ReadError wrong = system_error(path, "stat");
    close(file);
    return wrong;
  }
  if (about.st_size == 0) {
    close(file);
    return error(Kind::kTruncated, 0, path + ": the file is empty");
  }
  const auto bytes = static_cast<size_t>(about.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  const ReadError wrong = system_error(path, "map");
  close(file);
  if (data == MAP_FAILED) return wrong;
  auto mapping = std::make_shared<const Mapping>(data, bytes);
  auto parsed = parse({static_cast<const std::byte*>(data), bytes});
  if (auto* library = std::get_if<Metallib>(&parsed)) library->mapping_ = std::move(mapping);
  return parsed;
}

const Function* Metallib::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &functions_[found->second];
}

std::variant<Bytes, ReadError> Metallib::module(const Function& f) const {
  const Bytes raw = bytes_.subspan(f.offset, f.size);
  if (!f.hash.empty()) {
    const auto digest = llvm::SHA256::hash(llvm::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(raw.data()), raw.size()));
    if (std::memcmp(digest.data(), f.hash.data(), digest.size()) != 0) {
      return error(Kind::kChecksum, f.offset, f.name + ": the module's SHA-256 is not the one in the function list");
    }
  }
  if (raw.size() < 4)
    return error(Kind::kTruncated, f.offset + raw.size(), f.name + ": a module of " + std::to_string(raw.size()) + " bytes");
  Bytes bitcode = raw;
  Cursor c(raw, 0, raw.size());
  if (c.number<uint32_t>() == kWrapperMagic) {
    if (raw.size() < kWrapper)
      return error(Kind::kTruncated, f.offset + raw.size(), f.name + ": ends within the bitcode's wrapper of 20 bytes");
    c.take(4);
    const uint32_t offset = c.number<uint32_t>(), size = c.number<uint32_t>();
    if (!within(offset, size, raw.size()))
      return error(Kind::kMalformed, f.offset + 8, f.name + ": the wrapper's bitcode leaves the module");
    bitcode = raw.subspan(offset, size);
  }
  if (bitcode.size() < 4 || Cursor(bitcode, 0, 4).number<uint32_t>() != kBitcodeMagic) {
    return error(Kind::kForeign, f.offset, f.name + ": expected LLVM bitcode");
  }
  return bitcode;
}

std::variant<Bytes, ReadError> Metallib::module(std::string_view name) const {
  const Function* f = find(name);
  if (!f)
    return error(Kind::kAbsent, 0,
                 "there is no function '" + std::string(name) + "'; the library has " + std::to_string(functions_.size()));
  return module(*f);
}

}  // namespace metal_on_cpu::air
