/* Memory: alignment, zeros, no overlap; counters of allocated and resident bytes. */
#include <stdint.h>
#include <string.h>

#include "core/comm.h"
#include "core/memory.h"
#include "core/status.h"
#include "suite.h"

static void test_memory_held(void)
{
  const size_t before = trm_memory_allocated();
  char *small = trm_alloc(1000, "a test"), *large = trm_alloc((size_t)40 << 20, "a test");
  struct trm_comm *self = trm_comm_self();
  struct trm_shared shared;
  CU_ASSERT_EQUAL_FATAL(self->ops->share(self, 5000000, TRM_MEMORY_BUFFERS, &shared), TRM_OK);
  CU_ASSERT(trm_memory_allocated() >= before + 1000 + ((size_t)40 << 20) + 5000000);
  const size_t resident = trm_memory_resident();
  memset(large, 1, (size_t)40 << 20);
  CU_ASSERT(trm_memory_resident() >= resident + ((size_t)39 << 20));
  CU_ASSERT(trm_memory_peak() >= resident + ((size_t)39 << 20));
  self->ops->unshare(self, &shared);
  trm_free(small);
  trm_free(large);
  CU_ASSERT_EQUAL(trm_memory_allocated(), before);
}

static void test_memory(void)
{
  static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 2097151, 2097152, 2097153, 9000001};
  char *block[sizeof sizes / sizeof *sizes];
  const size_t count = sizeof sizes / sizeof *sizes;
  for (size_t i = 0; i < count; i++) {
    block[i] = trm_alloc(sizes[i], "a test");
    CU_ASSERT_EQUAL((uintptr_t)block[i] % TRM_ALIGNMENT, 0);
    size_t zeros = 0;
    for (size_t j = 0; j < sizes[i]; j++)
      zeros += block[i][j] == 0;
    CU_ASSERT_EQUAL(zeros, sizes[i]);
    memset(block[i], (int)i + 1, sizes[i]);
  }
  CU_ASSERT_EQUAL((uintptr_t)block[8] % ((size_t)2 << 20), 0);
  for (size_t i = 0; i < count; i++) { /* no overlap */
    size_t kept = 0;
    for (size_t j = 0; j < sizes[i]; j++)
      kept += block[i][j] == (char)(i + 1);
    CU_ASSERT_EQUAL(kept, sizes[i]);
    trm_free(block[i]);
  }
  trm_free(NULL);
  trm_advise_huge(NULL, 0);
  char *text = trm_format("%d-%s", 42, "x");
  CU_ASSERT_STRING_EQUAL(text, "42-x");
  char *copy = trm_strdup(text);
  CU_ASSERT_STRING_EQUAL(copy, text);
  CU_ASSERT_PTR_NOT_EQUAL(copy, text);
  trm_free(copy);
  trm_free(text);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"memory", test_memory},
    {"allocated and resident bytes", test_memory_held},
    CU_TEST_INFO_NULL,
  };
  return suite_run("memory", tests);
}
