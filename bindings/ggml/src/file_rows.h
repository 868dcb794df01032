// Rows of an embedding that a program has in its mapped file, where the head of the model is a
// packed copy of the same bytes.
#pragma once

#include <ggml.h>

#include <cstddef>

namespace marlin_ggml {

/// Notes, while it lives, that the bytes at `data` are part of a mapped file and were packed.
class PartOfFile {
 public:
  PartOfFile(const void* data, size_t size);
  ~PartOfFile();
  PartOfFile(PartOfFile&& other) noexcept;
  PartOfFile& operator=(PartOfFile&&) = delete;

 private:
  const void* data_;
};

/// Reads rows of such a table. A page of a mapped file that is read brings its neighbors along, up
/// to 64 KB of them, so that a prompt of a few hundred tokens would bring back most of a table that
/// the process holds already, packed. The pages therefore leave the process again after some rows.
/// The values are always those in the program's memory, decoded by ggml.
class FileRows {
 public:
  /// Whether it computes this node: rows of a matrix of blocks, in the order of a vector of ids.
  static bool takes(const ggml_tensor& node);
  /// An id of no row is an error, which is logged.
  ggml_status read(const ggml_tensor& node);

 private:
  int rows_ = 0;  // read since the pages left last
};

}  // namespace marlin_ggml
