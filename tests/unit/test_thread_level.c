/* An MPI library that grants threads less than is needed is refused, on every rank. The library is the real one behind
 * an MPI_Init_thread of this program, which the library's tools interface (PMPI) provides for. */
#include <mpi.h>
#include <string.h>

#include "core/status.h"
#include "mpi/real.h"
#include "suite.h"

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
  const int status = PMPI_Init_thread(argc, argv, required, provided);
  *provided = MPI_THREAD_SERIALIZED;
  return status;
}

static void test_refused(void)
{
  struct trm_comm *world = NULL;
  CU_ASSERT_EQUAL(trm_comm_start(NULL, NULL, false, &world), TRM_FAILED);
  CU_ASSERT_PTR_NULL(world);
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "one thread at a time call it, but MPI_THREAD_MULTIPLE is needed"));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), trm_comm_library()));
  CU_ASSERT_PTR_NOT_NULL(strstr(trm_error_text(), "--enable-threads=multiple"));
  int ended = 0;
  MPI_Finalized(&ended);
  CU_ASSERT_TRUE(ended);
}

int main(void)
{
  CU_TestInfo tests[] = {
    {"too few threads are refused", test_refused},
    CU_TEST_INFO_NULL,
  };
  return suite_run("thread level", tests);
}
