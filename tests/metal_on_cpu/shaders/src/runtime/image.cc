#include "image.h"

#include <dlfcn.h>
#include <link.h>

namespace metal_on_cpu {
namespace {

std::vector<Segment> segments_of(void* handle) {
  struct Search {
    uintptr_t base;
    std::vector<Segment> found;
  } search{};
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return {};
  search.base = map->l_addr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        for (int i = 0; info->dlpi_addr == s.base && i < info->dlpi_phnum; ++i) {
          const auto& p = info->dlpi_phdr[i];
          if (p.p_type == PT_LOAD) s.found.push_back({s.base + p.p_vaddr, s.base + p.p_vaddr + p.p_memsz});
        }
        return 0;
      },
      &search);
  return search.found;
}

}  // namespace

Result<std::shared_ptr<const Image>> Image::load(const std::string& path) {
  std::shared_ptr<Image> image(new Image);
  image->path_ = path;
  image->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!image->handle_) return Error{std::string("cannot load the image: ") + dlerror()};
  using Table = const msl::Kernel* (*)(uint32_t*);
  auto table = reinterpret_cast<Table>(dlsym(image->handle_, "msl_image_kernels"));
  uint32_t count = 0;
  if (table) {
    const msl::Kernel* first = table(&count);
    image->kernels_ = {first, count};
  }
  image->segments_ = segments_of(image->handle_);
  if (const auto* tables = static_cast<const msl::Tables*>(dlsym(image->handle_, "msl_image_tables"))) {
    static_assert(sizeof(OperationCounts) == kOperationCount * sizeof(uint32_t));
    image->blocks_ = {reinterpret_cast<const OperationCounts*>(tables->operations), tables->block_count};
  }
  return std::shared_ptr<const Image>(std::move(image));
}

Image::~Image() {
  if (handle_) dlclose(handle_);
}

const msl::Kernel* Image::find(const std::string& name) const {
  for (const msl::Kernel& kernel : kernels_) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

}  // namespace metal_on_cpu
