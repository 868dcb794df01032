// The program is compiled for any processor of its kind; functions with loops over floats are
// compiled once more for newer ones, and the dynamic linker takes the best. Nothing else has to be
// said to g++ or clang: the loops are plain.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LLM_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LLM_VECTOR_CLONES
#endif
