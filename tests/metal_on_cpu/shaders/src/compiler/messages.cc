#include "messages.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "../beside.h"

namespace metal_on_cpu {
namespace {

bool of_prelude(const std::string& file) { return file.starts_with(prelude_path()) || file == "<command line>"; }

// The names of the hidden machinery mean nothing to who wrote the shader.
std::string readable(std::string text) {
  static const std::pair<const char*, const char*> kNames[] = {{"__attribute__((address_space(1)))", "device"},
                                                               {"__attribute__((address_space(2)))", "constant"},
                                                               {"__attribute__((address_space(3)))", "threadgroup"},
                                                               {"reinterpret_cast from ", "cast from "},
                                                               {"metal::", ""}};
  for (const auto& [from, to] : kNames) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from))
      text.replace(at, std::string(from).size(), to);
  }
  if (const size_t option = text.rfind(" [-W"); option != std::string::npos && text.ends_with("]")) text.resize(option);
  return text;
}

bool is_error(const ClangMessage& m) { return m.severity == "error" || m.severity == "fatal error"; }

// The address space in a type's text: clang writes the attribute, or the macro that stands for it.
int space_of(const std::string& type) {
  static constexpr const char* kNames[] = {"", "device ", "constant ", "threadgroup "};
  for (int i = 1; i <= 3; ++i) {
    if (type.find("address_space(" + std::to_string(i)) != std::string::npos || type.find(kNames[i]) != std::string::npos)
      return i;
  }
  return 0;
}

// What a pointer or array refers to, without its qualifiers.
std::string pointee(std::string type) {
  for (const char* s : {"__attribute__((address_space(1)))", "__attribute__((address_space(2)))",
                        "__attribute__((address_space(3)))", "device ", "constant ", "threadgroup ", "const ", "volatile "}) {
    for (size_t at = type.find(s); at != std::string::npos; at = type.find(s)) type.erase(at, std::string(s).size());
  }
  type = type.substr(0, type.find_first_of("*["));
  if (const size_t at = type.find(" const"); at != std::string::npos) type.resize(at);
  type.erase(std::remove(type.begin(), type.end(), ' '), type.end());
  return type;
}

// Whether the two quoted types are a pointer and a pointer or array that differ in their space, and in nothing else if `alike`.
bool types_mix_spaces(const std::string& text, bool alike = true) {
  const size_t a = text.find('\''), b = text.find('\'', a + 1), c = text.find('\'', b + 1), d = text.find('\'', c + 1);
  if (a == std::string::npos || d == std::string::npos) return false;
  const std::string one = text.substr(a + 1, b - a - 1), two = text.substr(c + 1, d - c - 1);
  return one.find_first_of("*[") != std::string::npos && two.find_first_of("*[") != std::string::npos &&
         space_of(one) != space_of(two) && (!alike || pointee(one) == pointee(two));
}

// Pointers (not objects, whose copying clang does not know in address spaces) that change their space.
bool mixes_spaces(const std::string& text) {
  if (text.find("converts between mismatching address spaces") != std::string::npos) return true;
  if (text.find("changes address space of pointer") != std::string::npos) return true;
  if (text.starts_with("reinterpret_cast from ") || text.starts_with("static_cast from ")) return types_mix_spaces(text, false);
  return (text.starts_with("cannot initialize a ") || text.starts_with("assigning to ")) && types_mix_spaces(text);
}

// Every candidate fails for the address space of an argument alone. Constructors and operators of classes do not count: they
// fail for reasons that MSL does not have.
bool no_candidate_for_its_space(const std::vector<ClangMessage>& all, size_t error) {
  size_t notes = 0;
  for (size_t i = error + 1; i < all.size() && all[i].severity == "note"; ++i) {
    const std::string& text = all[i].text;
    if (text.starts_with("candidate constructor") || text.find("(the implicit") != std::string::npos) return false;
    if (!text.starts_with("candidate ")) continue;
    notes++;
    // A class passed by value is copied, whatever its address space.
    const size_t wanted = text.find("parameter type must be");
    const bool mismatch = (text.find("address space mismatch") != std::string::npos && wanted != std::string::npos &&
                           text.find_first_of("*&", wanted) != std::string::npos) ||
                          text.find("cannot pass pointer to address space") != std::string::npos ||
                          text.find("cannot pass pointer to generic address space") != std::string::npos ||
                          text.find("cannot pass pointer to default address space") != std::string::npos ||
                          (text.find("no known conversion from") != std::string::npos && types_mix_spaces(text)) ||
                          (text.find("could not match") != std::string::npos && types_mix_spaces(text));
    if (!mismatch) return false;
  }
  return notes > 0;
}

// The class S of a quoted type such as 'const names::S<float>'.
std::string class_of(const std::string& text) {
  const size_t begin = text.find('\''), end = text.find_first_of("<'", begin + 1);
  if (begin == std::string::npos || end == std::string::npos) return {};
  const std::string name = text.substr(begin + 1, end - begin - 1);
  return name.substr(name.find_last_of(" :") + 1);
}

// A member function for objects of threads is called for one elsewhere, whose class has none for that place. Clang does not
// know member functions of address spaces, so those that there are have lost theirs. Classes of Metal have members for all.
bool calls_member_elsewhere(const std::string& text, const std::set<std::string>& member_spaces) {
  static constexpr const char* kNames[] = {"", " device", " constant", " threadgroup"};
  static const std::string kOf = "with an expression of type ";
  if (!text.starts_with("cannot initialize object parameter of type ")) return false;
  const std::string type = text.substr(text.find(kOf) + kOf.size()), name = class_of(text);
  return space_of(type) != 0 && type.find("metal::") == std::string::npos &&
         !member_spaces.contains(name + kNames[space_of(type)]);
}

}  // namespace

std::vector<ClangMessage> parse_messages(const std::string& output) {
  std::vector<ClangMessage> found;
  size_t at = 0;
  while (at < output.size()) {
    const size_t end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    at = end + 1;
    for (const char* severity : {"fatal error", "error", "warning", "note"}) {
      const size_t where = line.find(std::string(": ") + severity + ": ");
      if (where == std::string::npos) continue;
      ClangMessage m;
      m.severity = severity;
      m.text = line.substr(where + m.severity.size() + 4);
      std::string place = line.substr(0, where);  // file:line:column
      for (int k = 0; k < 2; ++k) {
        const size_t colon = place.rfind(':');
        if (colon == std::string::npos) break;
        const std::string number = place.substr(colon + 1);
        if (number.empty() || !std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); }))
          break;
        m.line = static_cast<uint32_t>(std::strtoul(number.c_str(), nullptr, 10));
        place.resize(colon);
      }
      m.file = place;
      found.push_back(std::move(m));
      break;
    }
  }
  return found;
}

std::vector<Diagnostic> shader_errors(const std::vector<ClangMessage>& messages) {
  std::vector<Diagnostic> errors;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_error(messages[i])) continue;
    const ClangMessage* place = &messages[i];
    for (size_t k = i + 1; of_prelude(place->file) && k < messages.size() && messages[k].severity == "note"; ++k) {
      if (!of_prelude(messages[k].file)) place = &messages[k];
    }
    errors.push_back({place->file, place->line, readable(messages[i].text)});
  }
  return errors;
}

std::vector<Diagnostic> language_errors(const std::vector<ClangMessage>& messages, const std::set<std::string>& member_spaces) {
  std::vector<Diagnostic> found;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ClangMessage& m = messages[i];
    if (of_prelude(m.file)) continue;
    if (is_error(m) && calls_member_elsewhere(m.text, member_spaces)) {
      found.push_back({m.file, m.line, readable(m.text) + ": the member function is for objects of threads alone"});
    } else if (is_error(m) && (mixes_spaces(m.text) || no_candidate_for_its_space(messages, i))) {
      std::string text = m.text;
      if (text.starts_with("no matching function")) text += ": an argument has another address space than the parameter";
      found.push_back({m.file, m.line, readable(text)});
    }
  }
  return found;
}

}  // namespace metal_on_cpu
