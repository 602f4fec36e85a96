/* TRM_ADDRESS_SANITIZER and TRM_THREAD_SANITIZER: defined if the compiler adds these checks; gcc and clang tell it in
 * different ways. */
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRM_ADDRESS_SANITIZER
#endif
#if __has_feature(thread_sanitizer)
#define TRM_THREAD_SANITIZER
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define TRM_ADDRESS_SANITIZER
#endif
#ifdef __SANITIZE_THREAD__
#define TRM_THREAD_SANITIZER
#endif
