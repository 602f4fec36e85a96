# OpenMP: optional; without it a rank has one thread.
AC_DEFUN([TRM_FIND_OPENMP], [
AC_OPENMP
trm_have_openmp=no
AS_CASE([$ac_cv_prog_c_openmp],
  [unsupported|''], [AS_IF([test "x$enable_openmp" != xno],
     [AC_MSG_WARN([no OpenMP: no oneDNN, and an OpenBLAS made with OpenMP may use threads of its own (clang needs libomp-dev)])])],
  [trm_have_openmp=yes])
])
