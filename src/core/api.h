/* Version of the library, and C linkage for programs in C++. Every public header includes this one. */
#pragma once

#define TRM_VERSION "0.1.0"
#define TRM_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch, for the preprocessor */

#ifdef __cplusplus
#define TRM_BEGIN_DECLS extern "C" {
#define TRM_END_DECLS }
#else
#define TRM_BEGIN_DECLS
#define TRM_END_DECLS
#endif
