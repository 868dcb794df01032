#pragma once
// The switches of planted edits, included by every mutated copy of a source and by nothing else.
//   METAL_MARLIN_MUTANT=number    turns one edit on; without it the code computes as it was written
//   METAL_MARLIN_REACHED=file     a file of zeros with a byte for each edit; a byte becomes 1 as control reaches its edit
// The file is shared memory: a child process marks it too, and a crash loses nothing.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace marlin_mutation {

inline int number_from_environment() {
  const char* number = std::getenv("METAL_MARLIN_MUTANT");
  return number ? std::atoi(number) : -1;
}

struct Reached {
  unsigned char* marks = nullptr;
  long count = 0;
};

inline Reached reached_from_environment() {
  Reached reached;
  const char* path = std::getenv("METAL_MARLIN_REACHED");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return reached;
  struct stat about;
  if (fstat(file, &about) == 0 && about.st_size > 0) {
    const size_t size = static_cast<size_t>(about.st_size);
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) {
      reached.marks = static_cast<unsigned char*>(memory);
      reached.count = about.st_size;
    }
  }
  close(file);
  return reached;
}

inline const int active = number_from_environment();
inline const Reached reached = reached_from_environment();

inline bool on(int number) {
  if (reached.marks && number < reached.count) {
    __atomic_store_n(reached.marks + number, static_cast<unsigned char>(1), __ATOMIC_RELAXED);
  }
  return number == active;
}

}  // namespace marlin_mutation
