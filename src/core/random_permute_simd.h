/* The permutation on many numbers in lockstep, for one instruction set: included by random_permute.c with CLONE, TARGET
 * and V_* defined, which end here. Numbers lie in the low halves of 64-bit lanes: compilers do not find the
 * multiplication of halves that these instruction sets have. What comes to lie in the upper halves does not matter. */

#define VECTORS 2
#define LANES (VECTORS * sizeof(V) / sizeof(uint64_t))

struct CLONE(words) {
  V c0, c1, c2, c3;
};

TARGET static inline struct CLONE(words) CLONE(permute_philox_step)(struct CLONE(words) w, V k0, V k1)
{
  const V p0 = V_MUL(w.c0, V_SET1(0xD2511F53)), p1 = V_MUL(w.c2, V_SET1(0xCD9E8D57));
  return (struct CLONE(words)){V_XOR(V_UPPER(p1), V_XOR(w.c1, k0)), p1, V_XOR(V_UPPER(p0), V_XOR(w.c3, k1)), p0};
}

/* All rounds once. key (STEPS, 2) */
TARGET static inline void CLONE(permute_pass)(const struct feistel *f, V (*key)[2], uint64_t *left, uint64_t *right)
{
  const V mask = V_SET1(f->mask), stream = V_SET1(f->stream), purpose = V_SET1(f->purpose);
  V l0 = V_LOAD((const V *)left), l1 = V_LOAD((const V *)left + 1);
  V r0 = V_LOAD((const V *)right), r1 = V_LOAD((const V *)right + 1);
  for (uint32_t round = 0; round < ROUNDS; round++) {
    struct CLONE(words) w0 = {r0, V_SET1(PERMUTE_FLAG | round), stream, purpose}, w1 = {r1, w0.c1, stream, purpose};
    for (int step = 0; step < STEPS; step++) {
      w0 = CLONE(permute_philox_step)(w0, key[step][0], key[step][1]);
      w1 = CLONE(permute_philox_step)(w1, key[step][0], key[step][1]);
    }
    const V next0 = V_XOR(l0, V_AND(w0.c0, mask)), next1 = V_XOR(l1, V_AND(w1.c0, mask));
    l0 = r0;
    l1 = r1;
    r0 = next0;
    r1 = next1;
  }
  V_STORE((V *)left, l0);
  V_STORE((V *)left + 1, l1);
  V_STORE((V *)right, r0);
  V_STORE((V *)right + 1, r1);
}

/* A lane whose number has come to lie below n takes the next position; the others go on. */
TARGET static void CLONE(permute_many)(const struct feistel *f, uint64_t first, size_t count, uint64_t *element)
{
  uint64_t left[LANES], right[LANES];
  size_t of[LANES], next = 0, done = 0;
  V key[STEPS][2];
  for (uint32_t step = 0; step < STEPS; step++) {
    key[step][0] = V_SET1(f->key[0] + step * 0x9E3779B9u);
    key[step][1] = V_SET1(f->key[1] + step * 0xBB67AE85u);
  }
  for (; next < LANES; next++) {
    of[next] = next; /* from count on: idle */
    left[next] = (first + next) >> f->half & f->mask;
    right[next] = (first + next) & f->mask;
  }
  while (done < count) {
    CLONE(permute_pass)(f, key, left, right);
    for (size_t l = 0; l < LANES; l++) {
      const uint64_t value = left[l] << f->half | right[l];
      if (value >= f->n || of[l] >= count)
        continue;
      element[of[l]] = value;
      done++;
      of[l] = next;
      left[l] = (first + next) >> f->half & f->mask;
      right[l] = (first + next) & f->mask;
      next++;
    }
  }
}

#undef CLONE
#undef TARGET
#undef V
#undef V_SET1
#undef V_LOAD
#undef V_STORE
#undef V_MUL
#undef V_UPPER
#undef V_XOR
#undef V_AND
#undef VECTORS
#undef LANES
