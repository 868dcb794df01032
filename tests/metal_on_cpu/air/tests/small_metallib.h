// A small, valid .metallib of any modules, to be spoilt byte by byte.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/Support/SHA256.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace metal_on_cpu::air {

struct SmallModule {
  std::string name, bitcode;
  bool hashed = true, wrapped = true;
};

template <class T>
void append_number(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

inline void append_tag(std::string& to, const char* tag, const std::string& payload) {
  to += tag;
  append_number<uint16_t>(to, static_cast<uint16_t>(payload.size()));
  to += payload;
}

inline std::string wrapped_bitcode(const SmallModule& m) {
  std::string raw;
  if (m.wrapped) {
    for (const uint32_t n : {0x0b17c0deu, 0u, 20u, static_cast<uint32_t>(m.bitcode.size()), 0xffffffffu}) append_number(raw, n);
  }
  return raw + m.bitcode;
}

inline std::string function_entry(const SmallModule& m, const std::string& raw, uint64_t offset) {
  std::string tags, number;
  append_tag(tags, "NAME", m.name + '\0');
  append_tag(tags, "TYPE", "\2");
  if (m.hashed) {
    const auto digest = llvm::SHA256::hash(llvm::ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(raw.data()), raw.size()));
    append_tag(tags, "HASH", std::string(digest.begin(), digest.end()));
  }
  for (const uint64_t n : {uint64_t{0}, uint64_t{0}, offset}) append_number(number, n);
  append_tag(tags, "OFFT", number);
  number.clear();
  for (const uint16_t n : {2, 6, 3, 1}) append_number(number, n);
  append_tag(tags, "VERS", number);
  number.clear();
  append_number<uint64_t>(number, raw.size());
  append_tag(tags, "MDSZ", number);
  std::string entry;
  append_number(entry, static_cast<uint32_t>(tags.size() + 8));
  return entry + tags + "ENDT";
}

inline std::string small_metallib(const std::vector<SmallModule>& modules) {
  std::string list, bitcode;
  append_number(list, static_cast<uint32_t>(modules.size()));
  for (const SmallModule& m : modules) {
    const std::string raw = wrapped_bitcode(m);
    list += function_entry(m, raw, bitcode.size());
    bitcode += raw;
  }
  const uint64_t begin = 0x58, end = begin + list.size();
  std::string file = std::string("MTLB\x01\x80\x02\0\7\0\0\x81\x0e\0\0\0", 16);
  append_number<uint64_t>(file, end + bitcode.size());
  for (const uint64_t n : {begin, uint64_t{list.size() - 4}, end, uint64_t{0}, end, uint64_t{0}, end, uint64_t{bitcode.size()}})
    append_number(file, n);
  return file + list + bitcode;
}

inline std::string tiny_bitcode(char filler = 'x') { return std::string("BC\xc0\xde", 4) + std::string(12, filler); }

}  // namespace metal_on_cpu::air
