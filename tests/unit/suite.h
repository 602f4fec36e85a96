/* A CUnit program: a table of tests, a watchdog, an exit status for automake. */
#pragma once

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Moves the tests whose names contain one of the texts in TRM_TEST_ONLY ("gemm|softmax") to the begin of the table. */
static inline void suite_choose(CU_TestInfo *tests)
{
  const char *only = getenv("TRM_TEST_ONLY");
  size_t kept = 0;

  for (size_t i = 0; only && tests[i].pName; i++)
    for (const char *text = only, *end; text; text = *end ? end + 1 : NULL) {
      char word[128] = "";

      end = text + strcspn(text, "|");
      strncat(word, text, end - text < 127 ? (size_t)(end - text) : 127);
      if (!strstr(tests[i].pName, word))
        continue;
      tests[kept++] = tests[i];
      break;
    }
  if (only)
    tests[kept] = (CU_TestInfo)CU_TEST_INFO_NULL;
}

/* Runs the table, which ends with CU_TEST_INFO_NULL. Returns 0 if every test passed, and there was one. SIGALRM ends a
 * test that hangs. */
static inline int suite_run(const char *name, CU_TestInfo *tests)
{
  CU_SuiteInfo suites[] = {{name, NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};
  suite_choose(tests);
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
