# POSIX threads: the loader and the heartbeat are threads.
AC_DEFUN([TRM_FIND_PTHREAD], [
AC_MSG_CHECKING([for POSIX threads])
trm_have_pthread=no
trm_save_CFLAGS=$CFLAGS
for PTHREAD_CFLAGS in -pthread ''; do
  CFLAGS="$trm_save_CFLAGS $PTHREAD_CFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <pthread.h>
static void *run(void *p) { return p; }
]], [[pthread_t t; return pthread_create(&t, 0, run, 0)]])], [trm_have_pthread=yes; break])
done
CFLAGS=$trm_save_CFLAGS
AC_MSG_RESULT([$trm_have_pthread])
AS_IF([test $trm_have_pthread = no],
  [TRM_MISSING([POSIX threads (pthread.h)], [libc6-dev], [a compiler module with its C library])])
AC_SUBST([PTHREAD_CFLAGS])
])
