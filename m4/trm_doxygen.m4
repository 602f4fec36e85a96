# TRM_FIND_DOXYGEN: makes pages of the documentation (make docs).
AC_DEFUN([TRM_FIND_DOXYGEN], [
AC_ARG_VAR([DOXYGEN], [path of doxygen])
AC_PATH_PROG([DOXYGEN], [doxygen])
])
