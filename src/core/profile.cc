#include "core/profile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/cache_folder.h"
#include "core/plan.h"

namespace metal_marlin {
namespace {

/// The first line of a file. Another number means other lines.
constexpr std::string_view kSchema = "metal-marlin profile 1";
/// A larger file is none of ours: a class takes about 250 bytes.
constexpr off_t kMostBytes = 4 << 20;
constexpr int64_t kMostSplits = 64, kMostTeam = 8;

constexpr std::string_view kClassNames[kClassFields] = {
    "format", "group", "scales",  "zeros",  "zero_scales", "sparse", "act_order", "n",
    "k",      "a",     "compute", "inputs", "experts",     "top_k",  "summed",    "rows"};

int64_t& at(ProductClass& products, ClassField field) {
  return products[static_cast<size_t>(field)];
}

/// One line of the head, whatever the system names things.
void add_line(std::string& head, std::string_view name, std::string_view value) {
  head.append(name).append(" ");
  for (const char c : value) head += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  head += '\n';
}

std::string head_of(const ProfileKey& key) {
  std::string head(kSchema);
  head += '\n';
  char version[48];
  std::snprintf(version, sizeof version, "%d.%d.%d", MARLIN_VERSION_MAJOR, MARLIN_VERSION_MINOR,
                MARLIN_VERSION_PATCH);
  add_line(head, "library", version);
  add_line(head, "backend", key.backend);
  add_line(head, "device", key.device);
  add_line(head, "architecture", key.architecture);
  add_line(head, "driver", key.driver);
  struct utsname system{};
  if (uname(&system) != 0) return head + "system unknown\n";
  add_line(head, "system",
           std::string(system.sysname) + " " + system.release + " " + system.machine);
  return head;
}

std::string sealed(const std::string& text) {
  Hash hash;
  hash.add(text);
  char line[32];
  std::snprintf(line, sizeof line, "end %016" PRIx64 "\n", hash.value());
  return text + line;
}

/// Takes the text up to a separator off the front.
std::string_view take(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view front = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return front;
}

/// Reads "NAME=VALUE" words of a line in a fixed order.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}
  std::string_view text(std::string_view name) {
    std::string_view word = take(rest_, ' ');
    ok_ = ok_ && take(word, '=') == name && !word.empty();
    return word;
  }
  /// A text of the letters that names of kernels have: it reaches terminals.
  std::string_view name(std::string_view name) {
    const std::string_view word = text(name);
    ok_ = ok_ && std::all_of(word.begin(), word.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                   c == '_' || c == '-' || c == '.';
          });
    return word;
  }
  int64_t number(std::string_view name, int64_t most = INT64_MAX) {
    const std::string_view word = text(name);
    int64_t value = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    ok_ = ok_ && error == std::errc() && end == word.data() + word.size() && value >= 0 &&
          value <= most;
    return value;
  }
  /// That all words were as expected, and that there are no more.
  bool complete() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

Status malformed(int line) {
  return Status::error(MARLIN_E_FORMAT, "line %d is not as this version writes it", line);
}

}  // namespace

int64_t top_of_class(int64_t m) {
  constexpr int64_t kExact = 8, kMost = int64_t{1} << 40;
  m = std::clamp<int64_t>(m, 1, kMost);
  return m <= kExact ? m : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(m)));
}

ProductClass class_of(const GemmProblem& problem, int64_t m) {
  const WeightMeta& meta = problem.weights->meta();
  ProductClass products{};
  at(products, ClassField::format) = meta.format;
  at(products, ClassField::group) = meta.group_size;
  at(products, ClassField::scales) = static_cast<int64_t>(meta.scale_type);
  at(products, ClassField::zeros) = static_cast<int64_t>(meta.zero_kind);
  if (meta.zero_kind == ZeroKind::additive)
    at(products, ClassField::zero_scales) = static_cast<int64_t>(meta.zero_type);
  at(products, ClassField::sparse) = meta.sparse ? 1 : 0;
  at(products, ClassField::act_order) = meta.group_index.empty() ? 0 : 1;
  at(products, ClassField::n) = meta.n;
  at(products, ClassField::k) = meta.k;
  at(products, ClassField::a) = problem.a.dtype;
  at(products, ClassField::compute) = problem.compute;
  at(products, ClassField::inputs) = is_two_input(problem.epilogue) ? 2 : 1;
  if (problem.routing.present()) {
    at(products, ClassField::experts) = static_cast<int64_t>(problem.routing.stack->size());
    at(products, ClassField::top_k) = problem.routing.ids.cols;
    at(products, ClassField::summed) = problem.routing.scales.present() ? 1 : 0;
  }
  at(products, ClassField::rows) = top_of_class(m);
  return products;
}

Profile::Profile(std::string folder, const ProfileKey& key, const Logger& logger)
    : head_(head_of(key)), logger_(logger) {
  if (folder.empty()) return;
  Hash hash;
  hash.add(head_);
  char name[48];
  std::snprintf(name, sizeof name, "/profile-%016" PRIx64 ".txt", hash.value());
  path_ = std::move(folder) + name;
  const Status s = read(choices_);
  if (s.ok() || s.code() == MARLIN_E_NOT_FOUND) return;
  choices_.clear();
  logger_(LogLevel::warning,
          Status::error(MARLIN_E_FORMAT, "profile %s is ignored: %s", path_.c_str(), s.message())
              .message());
}

const KernelChoice* Profile::find(const ProductClass& products) const {
  const std::shared_lock lock(mutex_);
  const auto found = choices_.find(products);
  return found == choices_.end() ? nullptr : &found->second;
}

void Profile::keep(const ProductClass& products, const KernelChoice& choice) {
  const std::unique_lock lock(mutex_);
  changed_ |= choices_.try_emplace(products, choice).second;
}

size_t Profile::size() const {
  const std::shared_lock lock(mutex_);
  return choices_.size();
}

Status Profile::save() {
  Choices all, others;
  {
    const std::unique_lock lock(mutex_);
    if (!std::exchange(changed_, false) || path_.empty()) return {};
    all = choices_;
  }
  if (read(others).ok()) all.merge(others);
  const Status written = replace_file(path_, sealed(text(all)));
  if (written.ok()) return {};
  const std::unique_lock lock(mutex_);
  changed_ = true;
  return written;
}

std::string Profile::text(const Choices& choices) const {
  std::string text = head_;
  for (const auto& [products, choice] : choices) {
    text += "product";
    for (size_t i = 0; i < kClassFields; ++i)
      text.append(" ").append(kClassNames[i]).append("=").append(std::to_string(products[i]));
    text.append(" kernel=").append(choice.kernel);
    text.append(" splits=").append(std::to_string(choice.splits));
    text.append(" team=").append(std::to_string(choice.team));
    text.append(" ns=").append(std::to_string(choice.ns));
    text.append(" usual=").append(choice.usual);
    text.append(" usual_ns=").append(std::to_string(choice.usual_ns)).append("\n");
  }
  return text;
}

Status Profile::parse(std::string_view text, std::string_view head, Choices& out) {
  const size_t end = text.rfind("end ");
  if (end == std::string_view::npos || text.back() != '\n' ||
      sealed(std::string(text.substr(0, end))) != text)
    return Status::error(MARLIN_E_FORMAT, "it is damaged: its checksum does not fit");
  if (!text.starts_with(head))
    return Status::error(MARLIN_E_FORMAT,
                         "it is of another device, driver, system or version of the library");
  int line = static_cast<int>(std::count(head.begin(), head.end(), '\n'));
  for (std::string_view rest = text.substr(head.size(), end - head.size()); !rest.empty();) {
    ++line;
    std::string_view row = take(rest, '\n');
    if (take(row, ' ') != "product") return malformed(line);
    Words words(row);
    ProductClass products{};
    KernelChoice choice;
    for (size_t i = 0; i < kClassFields; ++i) products[i] = words.number(kClassNames[i]);
    choice.kernel = words.name("kernel");
    choice.splits = words.number("splits", kMostSplits);
    choice.team = words.number("team", kMostTeam);
    choice.ns = words.number("ns");
    choice.usual = words.name("usual");
    choice.usual_ns = words.number("usual_ns");
    if (!words.complete() || !out.try_emplace(products, std::move(choice)).second)
      return malformed(line);
  }
  return {};
}

Status Profile::read(Choices& out) const {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR))
    return Status::error(MARLIN_E_NOT_FOUND, "there is none");
  struct stat found{};
  const bool readable = file >= 0 && fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                        found.st_size <= kMostBytes;
  // Whoever can write a profile chooses kernels, and what marlin_explain says.
  if (readable && (found.st_uid != geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)) {
    close(file);
    return Status::error(MARLIN_E_FILE, "expected a file that only this user can write");
  }
  std::string text(readable ? static_cast<size_t>(found.st_size) : 0, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  if (file >= 0) close(file);
  if (!readable || size < text.size() || text.empty())
    return Status::error(MARLIN_E_FILE, "it cannot be read as a file of up to %d bytes",
                         static_cast<int>(kMostBytes));
  return parse(text, head_, out);
}

std::string explain_profile(const Profile& profile, const KernelChoice* choice) {
  std::string text;
  if (choice != nullptr) {
    append(text, "tuned: yes\n");
    append(text, "tuned_ns: %" PRId64 "\n", choice->ns);
    append(text, "usual_kernel: %s\n", choice->usual.c_str());
    append(text, "usual_ns: %" PRId64 "\n", choice->usual_ns);
  }
  if (!profile.path().empty())  // which may be longer than a line of append()
    text += "profile: " + profile.path() + "\nprofile_products: " + std::to_string(profile.size()) +
            "\n";
  return text;
}

}  // namespace metal_marlin
