/* Tiles of Intel's AMX, for files that are compiled for processors with AMX (BLAS_AMX). Private to blas and
 * kernels/cpu.
 *
 * A tile has 16 rows of 64 bytes, and one instruction adds the product of 16 x 32 and 32 x 16 values in bfloat16 to
 * 16 x 16 float32 sums (Intel's manual of the instruction set, TDPBF16PS; it takes subnormal values for zero). */
#pragma once

#include "blas/bf16_tile.h"

/* To be called between writing memory and the instructions that read tiles, or their configuration, from there: GCC
 * does not know that these read it. */
static inline void amx_tile_written(const void *memory)
{
  __asm__ volatile("" : : "r"(memory) : "memory");
}

/* Sets all of a thread's tile registers to 16 rows of 64 bytes. */
static inline void amx_tile_configure(void)
{
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } tiles = {.palette = 1};

  for (int i = 0; i < 8; i++) {
    tiles.bytes[i] = LINE;
    tiles.rows[i] = EDGE;
  }
  amx_tile_written(&tiles);
  _tile_loadconfig(&tiles);
}
