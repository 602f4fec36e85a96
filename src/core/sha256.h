/* SHA-256 (FIPS 180-4), for weights_sha256 and the data sets' checksums. Written here because every build must be able
 * to compare two runs, and neither MPI, HDF5 nor a CBLAS brings it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trm_sha256 {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64];
  bool is_native; /* by the processor's instructions */
};

void trm_sha256_begin(struct trm_sha256 *hash);
void trm_sha256_add(struct trm_sha256 *hash, const void *data, size_t bytes);
void trm_sha256_end(struct trm_sha256 *hash, char hex[65]); /* 64 lower-case digits and a NUL */
int trm_sha256_file(const char *path, char hex[65]); /* of its bytes as they are stored; errors name the file */
