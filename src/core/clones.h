/* One function, compiled for what x86-64 processors have and chosen when the program is loaded. Not under sanitizers
 * (they instrument the choosing function, which runs before they are ready), nor where the whole build is for one
 * processor. A cloned function is static, and its name unique in the library: clang gives the choosing function
 * another name, and makes it global. */
#pragma once

#include "core/sanitizers.h"

#if defined(__has_attribute) && defined(__x86_64__) && defined(__gnu_linux__) && !defined(__AVX512F__)
#if __has_attribute(target_clones) && !defined(TRM_ADDRESS_SANITIZER) && !defined(TRM_THREAD_SANITIZER)
#if __GNUC__ >= 12 && !defined(__clang__)
/* gcc needs AVX512BW to vectorize loops over values of 16 and 32 bits, and has no other name for a clone with it */
#define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#endif
#ifndef CPU_CLONES
#define CPU_CLONES
#endif
