// A folder: configs, an index, shards, a split GGUF. Each file of the input begins with a line "== NAME ZEROS", where ZEROS
// counts the zeros at its end, and the first file is the one to open. A packed container gets right checksums.
#include <charconv>

#include "base/bits.h"
#include "base/checksum.h"
#include "checkpoints/container/directory.h"
#include "fuzz/files.h"

namespace metal_marlin::fuzz {
namespace {

struct Named {
  std::string name, content;
};

/// A packed container with right sizes and checksums of head and directory, so that what it says is
/// judged; its last byte ends the section.
std::string sealed(std::string file) {
  file.resize(std::max(file.size() - 1, kContainerHeadBytes));
  const uint64_t size = file.size(), at = std::min<uint64_t>(load<uint64_t>(&file[24]), size);
  const auto sum = [&](size_t begin, size_t bytes) { return checksum(std::as_bytes(std::span(file).subspan(begin, bytes))); };
  store(&file[16], size);
  store(&file[24], at);
  store(&file[32], size - at);
  store(&file[40], sum(at, size - at));
  store(&file[kContainerHeadBytes - 8], sum(0, kContainerHeadBytes - 8));
  return file;
}

/// Takes the file whose line `text` begins with.
Named take_file(std::string_view& text) {
  text.remove_prefix(std::min<size_t>(3, text.size()));
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  const size_t end = text.find("\n== ");
  const std::string_view content = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  const size_t space = line.find(' ');
  unsigned short zeros = 0;
  if (space != line.npos) std::from_chars(line.data() + space + 1, line.data() + line.size(), zeros);
  Named file{std::string(line.substr(0, space)), std::string(content)};
  file.content.resize(file.content.size() + zeros, '\0');
  if (is_container(std::as_bytes(std::span(file.content)))) file.content = sealed(std::move(file.content));
  return file;
}

}  // namespace
}  // namespace metal_marlin::fuzz

MARLIN_FUZZ_TARGET(folder) {
  using namespace metal_marlin::fuzz;
  const std::string whole = text_of(input);
  std::string_view text = whole;
  auto folder = std::make_unique<metal_marlin::testing::MemoryFolder>();
  std::string first;
  size_t all = 0;
  for (int files = 0; files < 8 && !text.empty(); ++files) {
    const Named file = take_file(text);
    if (files == 0) first = file.name;
    all += file.content.size();
    folder->add(file.name, file.content);
  }
  open_and_read(std::move(folder), first, input.size(), all);
}
