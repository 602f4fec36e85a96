/* Arrays in a mapped file: zeroed, shared by the ranks of a node, unlinked, not counted as anonymous memory. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "core/mapped.h"
#include "core/memory.h"
#include "ranks.h"

static char folder[64];

/* Returns the process's anonymous memory, bytes; 0: unknown. */
static size_t anonymous(void)
{
  FILE *status = fopen("/proc/self/status", "r");
  char line[256];
  unsigned long long kib = 0;
  while (status && fgets(line, sizeof line, status))
    if (sscanf(line, "RssAnon: %llu", &kib) == 1)
      break;
  if (status)
    fclose(status);
  return (size_t)kib * 1024;
}

static int files_in(const char *path)
{
  int count = 0;
  DIR *directory = opendir(path);
  CU_ASSERT_PTR_NOT_NULL_FATAL(directory);
  while (readdir(directory))
    count++;
  closedir(directory);
  return count - 2;
}

static void memory(void)
{
  const size_t bytes = (size_t)48 << 20;
  const size_t before = anonymous();
  unsigned char *own = trm_alloc(bytes, "test");
  memset(own, 1, bytes);
  const size_t with = anonymous();
  trm_free(own);
  struct trm_mapped mapped;
  CU_ASSERT_EQUAL_FATAL(trm_mapped_create(trm_comm_self(), folder, bytes, "test", &mapped), TRM_OK);
  CU_ASSERT_EQUAL(files_in(folder), 0);
  CU_ASSERT_EQUAL(mapped.bytes, bytes);
  const unsigned char *data = mapped.data;
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; i++)
    wrong += data[i] != 0;
  CU_ASSERT_EQUAL(wrong, 0);
  const size_t start = anonymous();
  memset(mapped.data, 2, bytes);
  const size_t end = anonymous();
  if (before) {
    CU_ASSERT(with >= before + bytes / 10 * 9);
    CU_ASSERT(end <= start + bytes / 10);
  }
  trm_mapped_free(&mapped);
  CU_ASSERT_PTR_NULL(mapped.data);
  trm_mapped_free(&mapped);
}

static void test_memory(void)
{
  for (int rank = 0; rank < world->size; rank++) { /* one rank at a time: they count files */
    if (rank == world->rank)
      memory();
    world->ops->barrier(world);
  }
  CU_ASSERT_EQUAL(files_in(folder), 0);
}

/* All ranks read what one rank writes. */
static void test_shared(void)
{
  struct trm_comm *node = world->ops->split_node(world, TRM_SHARE_NODE);
  const size_t n = 100003;
  struct trm_mapped mapped;
  CU_ASSERT_EQUAL_FATAL(trm_mapped_create(node, folder, n * sizeof(float), "test", &mapped), TRM_OK);
  float *x = mapped.data;
  for (size_t i = (size_t)node->rank; i < n; i += (size_t)node->size)
    x[i] += (float)i;
  node->ops->barrier(node);
  size_t wrong = 0;
  for (size_t i = 0; i < n; i++)
    wrong += x[i] != (float)i;
  CU_ASSERT_EQUAL(wrong, 0);
  CU_ASSERT_EQUAL(files_in(folder), 0);
  node->ops->barrier(node);
  trm_mapped_free(&mapped);
  node->ops->release(node);
}

static void test_errors(void)
{
  struct trm_mapped mapped;
  CU_ASSERT_EQUAL(trm_mapped_create(world, folder, (size_t)1 << 61, "states", &mapped), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), folder));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "MiB for states"));
  CU_ASSERT_PTR_NULL(mapped.data);
  CU_ASSERT_EQUAL(files_in(folder), 0);
  CU_ASSERT_EQUAL(trm_mapped_create(world, "/no/such/folder", 1000, "states", &mapped), TRM_FAILED);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "/no/such/folder"));
  trm_mapped_free(&mapped);
}

static void test_folder(void)
{
  if (world->rank == 0) {
    snprintf(folder, sizeof folder, "/tmp/trireme-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  }
  world->ops->broadcast(world, folder, sizeof folder, TRM_BYTE, 0);
  CU_ASSERT_EQUAL(files_in(folder), 0);
  world->ops->barrier(world); /* rank 0 puts a file there next */
}

static void test_folder_again(void)
{
  world->ops->barrier(world);
  if (world->rank == 0)
    CU_ASSERT_EQUAL(rmdir(folder), 0);
  CU_ASSERT_NOT_EQUAL(folder[0], '\0');
}

int main(int argc, char **argv)
{
  CU_TestInfo tests[] = {
    {"a folder", test_folder},
    {"of one process", test_memory},
    {"shared by a node", test_shared},
    {"errors", test_errors},
    {"the folder again", test_folder_again},
    CU_TEST_INFO_NULL,
  };
  return ranks_run(argc, argv, "mapped", tests);
}
