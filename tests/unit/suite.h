/* A CUnit program: a table of tests, a watchdog, an exit status for automake. */
#pragma once

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <unistd.h>

/* Runs the table, which ends with CU_TEST_INFO_NULL. Returns 0 if every test passed. SIGALRM ends a test that hangs. */
static inline int suite_run(const char *name, CU_TestInfo *tests)
{
  CU_SuiteInfo suites[] = {{name, NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
  alarm(480);
  if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
    return 99;
  CU_basic_set_mode(CU_BRM_NORMAL);
  CU_basic_run_tests();
  const unsigned failures = CU_get_number_of_failures() + CU_get_number_of_suites_failed();
  const unsigned asserts = CU_get_number_of_asserts();
  CU_cleanup_registry();
  return failures || !asserts ? 1 : 0;
}
