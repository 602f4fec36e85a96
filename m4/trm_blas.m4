# A BLAS with the C interface (cblas.h); OpenBLAS is preferred.
#
# Results: BLAS_CFLAGS, BLAS_LIBS; HAVE_OPENBLAS and what of OpenBLAS is there;
# trm_blas_version, trm_blas_from.

AC_DEFUN([TRM_FIND_BLAS], [
AC_ARG_VAR([BLAS_CFLAGS], [compiler flags for cblas.h])
AC_ARG_VAR([BLAS_LIBS], [linker flags for a BLAS with the C interface])
AC_ARG_WITH([blas],
  [AS_HELP_STRING([--with-blas=LIBS],
     [linker flags of the BLAS to use, such as "-L/opt/blis/lib -lblis"; the same as BLAS_LIBS])],
  [AS_CASE([$withval],
     [yes], [],
     [no], [AC_MSG_ERROR([Trireme needs a BLAS])],
     [BLAS_LIBS=$withval])])

AC_MSG_CHECKING([for a BLAS with cblas.h])
trm_have_blas=no
trm_blas_order="pkg:openblas lib:openblas plain pkg:flexiblas pkg:blis lib:blis pkg:cblas lib:cblas"
trm_blas_given=
AS_IF([test "x$BLAS_CFLAGS$BLAS_LIBS" != x],
  [trm_blas_order=given
   trm_blas_given=": BLAS_CFLAGS/BLAS_LIBS or --with-blas are set, but do not work (see config.log)"])
trm_save_CFLAGS=$CFLAGS
trm_save_LIBS=$LIBS
for trm_blas_from in $trm_blas_order; do
  trm_try_cflags=; trm_try_libs=
  trm_module=`echo $trm_blas_from | sed 's/^.*://'`
  case $trm_blas_from in
    given) trm_try_cflags=$BLAS_CFLAGS; trm_try_libs=${BLAS_LIBS:--lopenblas} ;;
    pkg:*)
      TRM_PKG([$trm_module], [trm_try_cflags], [trm_try_libs])
      test $trm_pkg = yes || continue ;;
    lib:*) trm_try_libs=-l$trm_module ;;
  esac
  CFLAGS="$trm_save_CFLAGS $trm_try_cflags"
  LIBS="$trm_try_libs $trm_save_LIBS -lm"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cblas.h>]], [[
float a = 1, b = 2, c = 0;
cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1);
return c != 2;
]])], [trm_have_blas=yes; break])
done

AS_IF([test $trm_have_blas = yes],
  [BLAS_CFLAGS=$trm_try_cflags
   BLAS_LIBS=$trm_try_libs
   AS_CASE([$trm_blas_from],
     [given], [trm_blas_from="your flags"],
     [pkg:*], [trm_blas_from="pkg-config $trm_module"],
     [lib:*], [trm_blas_from="-l$trm_module"],
     [trm_blas_from="the compiler's own paths"])
   AC_MSG_RESULT([yes, from $trm_blas_from])
   TRM_OPENBLAS],
  [AC_MSG_RESULT([no])
   TRM_MISSING([a BLAS with the C interface (cblas.h and cblas_sgemm), best OpenBLAS$trm_blas_given],
     [libopenblas-openmp-dev],
     [module load openblas    (or ./configure --with-blas=LIBS BLAS_CFLAGS=-I...)])])
CFLAGS=$trm_save_CFLAGS
LIBS=$trm_save_LIBS
])

# TRM_OPENBLAS: OpenBLAS' extensions. CFLAGS and LIBS contain the BLAS flags here.
AC_DEFUN([TRM_OPENBLAS], [
trm_blas_version="unknown make"
trm_have_openblas=no
trm_openblas_threads=
AC_CHECK_FUNCS([openblas_set_num_threads openblas_set_num_threads_local openblas_get_corename])
AS_IF([test "x$ac_cv_func_openblas_set_num_threads" = xyes],
  [trm_have_openblas=yes
   AC_DEFINE([HAVE_OPENBLAS], [1], [Define if the BLAS is OpenBLAS.])
   TRM_CPP_VALUE([trm_value], [$BLAS_CFLAGS], [cblas.h], [OPENBLAS_VERSION])
   trm_blas_version=`echo "$trm_value" | sed 's/^OpenBLAS/OpenBLAS /; s/^OPENBLAS_VERSION$/OpenBLAS/'`
   TRM_OPENBLAS_THREADS
   # Debian's builds share one name, and the alternatives system prefers the pthread build. The OpenMP build shares its
   # threads with our kernels; the pthread build would compete for the cores.
   trm_openmp_dir=`echo " $BLAS_LIBS" | sed -n 's,.* -L\([[^ ]]*/openblas-\)pthread.*,\1openmp,p'`
   AS_IF([test "x$trm_openblas_threads" = xpthreads && test "x$trm_blas_from" = "xpkg-config openblas" &&
          test "x$trm_openmp_dir" != x && test -r "$trm_openmp_dir/libopenblas.so"],
     [BLAS_CFLAGS=`echo "$BLAS_CFLAGS" | sed 's,/openblas-pthread,/openblas-openmp,g'`
      BLAS_LIBS="-L$trm_openmp_dir -Wl,-rpath,$trm_openmp_dir -lopenblas"
      CFLAGS="$trm_save_CFLAGS $BLAS_CFLAGS"
      LIBS="$BLAS_LIBS $trm_save_LIBS -lm"
      TRM_OPENBLAS_THREADS])
   AS_IF([test "x$trm_openblas_threads" = xpthreads],
     [TRM_NOTE([this OpenBLAS runs threads of its own (pthreads) beside OpenMP's; the OpenMP build is faster here (Debian: libopenblas-openmp-dev)])])])
])

# TRM_OPENBLAS_THREADS: trm_openblas_threads = sequential, pthreads, OpenMP or unknown.
AC_DEFUN([TRM_OPENBLAS_THREADS], [
AC_MSG_CHECKING([how OpenBLAS makes its threads])
AC_RUN_IFELSE([AC_LANG_PROGRAM([[
#include <stdio.h>
int openblas_get_parallel(void);
]], [[
static const char *const name[] = { "sequential", "pthreads", "OpenMP" };
int kind = openblas_get_parallel();
FILE *f = fopen("conftest.out", "w");
if (!f) return 1;
fputs(kind >= 0 && kind <= 2 ? name[kind] : "unknown", f);
return fclose(f) != 0;
]])], [trm_openblas_threads=`cat conftest.out`], [trm_openblas_threads=unknown],
  [trm_openblas_threads=unknown])
rm -f conftest.out
AC_MSG_RESULT([$trm_openblas_threads])
])
