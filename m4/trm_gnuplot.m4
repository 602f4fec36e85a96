# gnuplot draws curves; it is run as a program.
AC_DEFUN([TRM_FIND_GNUPLOT], [
AC_ARG_VAR([GNUPLOT], [path of gnuplot])
AC_PATH_PROG([GNUPLOT], [gnuplot])
AC_DEFINE_UNQUOTED([TRM_GNUPLOT], ["${GNUPLOT:-gnuplot}"], [Path of gnuplot, or its name if it was not found.])
])
