/* Element types, blocks of rows, and the checksum of a block. */
#include "blocks.h"

#include <string.h>

#include "core/clones.h"

static const struct {
  const char *name;
  size_t bytes;
} types[BLOCK_TYPES] = {
  [BLOCK_UINT8] = {"uint8", 1}, [BLOCK_UINT16] = {"uint16", 2}, [BLOCK_INT32] = {"int32", 4},
  [BLOCK_INT64] = {"int64", 8}, [BLOCK_FLOAT] = {"float32", 4},
};

const char *block_type_name(enum block_type type)
{
  return types[type].name;
}

size_t block_type_bytes(enum block_type type)
{
  return types[type].bytes;
}

hid_t block_type_file(enum block_type type)
{
  switch (type) {
  case BLOCK_UINT8: return H5T_STD_U8LE;
  case BLOCK_UINT16: return H5T_STD_U16LE;
  case BLOCK_INT32: return H5T_STD_I32LE;
  case BLOCK_INT64: return H5T_STD_I64LE;
  default: return H5T_IEEE_F32LE;
  }
}

hid_t block_type_memory(enum block_type type)
{
  switch (type) {
  case BLOCK_UINT8: return H5T_NATIVE_UINT8;
  case BLOCK_UINT16: return H5T_NATIVE_UINT16;
  case BLOCK_INT32: return H5T_NATIVE_INT32;
  case BLOCK_INT64: return H5T_NATIVE_INT64;
  default: return H5T_NATIVE_FLOAT;
  }
}

size_t block_rows(size_t row_bytes)
{
  return row_bytes == 0 || row_bytes >= BLOCK_BYTES ? 1 : BLOCK_BYTES / row_bytes;
}

#define LANES 8

typedef uint64_t lanes __attribute__((vector_size(LANES / 2 * sizeof(uint64_t))));

CPU_CLONES
static void block_lanes_add(uint64_t a[LANES], uint64_t b[LANES], const unsigned char *data, size_t groups)
{
  /* as little-endian words, the even lanes are the low halves of 64-bit words and the odd ones the high halves */
  lanes even = {a[0], a[2], a[4], a[6]}, odd = {a[1], a[3], a[5], a[7]};
  lanes even_sum = {b[0], b[2], b[4], b[6]}, odd_sum = {b[1], b[3], b[5], b[7]};
  for (size_t g = 0; g < groups; g++) {
    lanes w;
    memcpy(&w, data + g * sizeof w, sizeof w);
    even += w & UINT64_C(0xffffffff);
    odd += w >> 32;
    even_sum += even;
    odd_sum += odd;
  }
  for (int l = 0; l < LANES / 2; l++) {
    a[2 * l] = even[l];
    a[2 * l + 1] = odd[l];
    b[2 * l] = even_sum[l];
    b[2 * l + 1] = odd_sum[l];
  }
}

uint64_t block_mix(uint64_t h)
{
  h ^= h >> 30;
  h *= UINT64_C(0xbf58476d1ce4e5b9);
  h ^= h >> 27;
  h *= UINT64_C(0x94d049bb133111eb);
  return h ^ h >> 31;
}

uint64_t block_checksum(const void *data, size_t bytes)
{
  uint64_t a[LANES] = {0}, b[LANES] = {0};
  const size_t group = LANES * sizeof(uint32_t), groups = bytes / group;
  block_lanes_add(a, b, data, groups);
  if (bytes % group) {
    unsigned char last[LANES * sizeof(uint32_t)] = {0};
    memcpy(last, (const unsigned char *)data + groups * group, bytes % group);
    block_lanes_add(a, b, last, 1);
  }
  uint64_t h = block_mix(bytes);
  for (int l = 0; l < LANES; l++) {
    h = block_mix(h ^ a[l]);
    h = block_mix(h ^ b[l]);
  }
  return h;
}
