// Images that are compiled once, as part of a build, and loaded by many processes.
#include <algorithm>
#include <filesystem>

#include "compiler/image_file.h"
#include "state.h"

namespace metal_on_cpu {
namespace {

// An image may be asked for with 7u and have been made with 7.
std::string without_suffix(std::string literal) {
  while (!literal.empty() && std::string("ulf").find(literal.back()) != std::string::npos) literal.pop_back();
  return literal;
}

std::string constants_text(const ConstantLiterals& constants, bool checked) {
  std::string text;
  for (const auto& [index, value] : constants.by_index) text += std::to_string(index) + "=" + value + ", ";
  for (const auto& [constant, value] : constants.by_name) text += constant + "=" + value + ", ";
  return (text.empty() ? "no constants, " : text) + (checked ? "checked" : "fast");
}

}  // namespace

Library::State::Key Library::State::key(const ConstantLiterals& constants, bool checked, bool flush_to_zero,
                                        const std::string& part) const {
  if (!of_images) return {constants.by_index, constants.by_name, checked, flush_to_zero, part};
  ConstantLiterals plain = constants;
  for (auto& [index, value] : plain.by_index) value = without_suffix(value);
  for (auto& [constant, value] : plain.by_name) value = without_suffix(value);
  return {plain.by_index, plain.by_name, checked, flush_to_zero, part};
}

Result<std::shared_ptr<const Image>> Library::State::emitted(const ConstantLiterals& constants, bool checked) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = images_.find(key(constants, checked, false, "")); found != images_.end()) return found->second;
  std::string all;
  for (const auto& [k, image] : images_)
    all += (all.empty() ? "" : "; ") + constants_text({std::get<0>(k), std::get<1>(k)}, std::get<2>(k));
  return Error{name + ": there is no image with " + constants_text(constants, checked) + "; there are: " + all};
}

std::string Library::State::add(const std::string& path) {
  auto origin = read_image_file(path);
  if (!origin) return origin.message();
  if (!source.kernels.empty() && origin.value().source != name)
    return path + ": is of " + origin.value().source + ", the images before it are of " + name;
  auto image = Image::load(std::filesystem::absolute(path).string());
  if (!image) return image.message();
  name = origin.value().source;
  for (const msl::Kernel& kernel : image.value()->kernels()) {
    if (std::find(source.kernels.begin(), source.kernels.end(), kernel.name) == source.kernels.end())
      source.kernels.emplace_back(kernel.name);
  }
  images_[key(origin.value().constants, origin.value().checked, false, "")] = image.take();
  return {};
}

Result<Library> Library::from_image(const std::string& path) {
  std::vector<std::string> files;
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, failed)) {
      if (entry.path().extension() == ".image") files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    if (files.empty()) return Error{path + ": holds no file *.image"};
  } else {
    files.push_back(path);
  }
  auto state = std::make_shared<State>();
  state->of_images = true;
  for (const std::string& file : files) {
    if (const std::string wrong = state->add(file); !wrong.empty()) return Error{wrong};
  }
  Library library;
  library.state_ = std::move(state);
  return library;
}

std::string Kernel::emit(const std::string& path, bool checked) const {
  const Library::State& library = *state_->library;
  if (library.of_images) return library.name + ": is an image already";
  const auto object = compile(library.source, {{}, state_->constants, checked}, library.options);
  if (!object) return object.message();
  return write_image_file(path, object.value(), {library.name, checked, state_->constants});
}

}  // namespace metal_on_cpu
