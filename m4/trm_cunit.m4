# CUnit: the unit tests; only "make check" needs it.
AC_DEFUN([TRM_FIND_CUNIT], [
TRM_OPTIONAL([CUNIT], [cunit], [cunit], [CUnit/Basic.h], [CU_basic_run_tests],
  [cunit], [libcunit1-dev])
AM_CONDITIONAL([TRM_CUNIT], [test $trm_have_CUNIT = yes])
])
