/* One function, compiled for what x86-64 processors have and chosen when the program is loaded. Not under sanitizers
 * (they instrument the choosing function, which runs before they are ready), nor where the whole build is for one
 * processor. A cloned function's name is unique in the library: clang makes the choosing function global even if it is
 * static. */
#pragma once

#if defined(__has_attribute) && defined(__x86_64__) && defined(__gnu_linux__) && !defined(__AVX512F__)
#if __has_attribute(target_clones) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef CPU_CLONES
#define CPU_CLONES
#endif
