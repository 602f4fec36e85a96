# MPI 3.1 or newer, and the mpiexec that belongs to it.
#
# Results: MPI_CFLAGS, MPI_LIBS, MPIEXEC (substituted); trm_mpi_kind is mpich, openmpi
# or other; trm_mpi_version; trm_mpi_from says where it was found.

AC_DEFUN([TRM_FIND_MPI], [
AC_ARG_VAR([MPICC], [MPI compiler wrapper whose flags are taken; CC stays the compiler])
AC_ARG_VAR([MPI_CFLAGS], [compiler flags for MPI])
AC_ARG_VAR([MPI_LIBS], [linker flags for MPI])
AC_ARG_VAR([MPIEXEC], [program that starts MPI jobs, for the tests])

trm_mpi_given="$MPI_CFLAGS$MPI_LIBS"
trm_mpi_order="pkg:mpich wrapper pkg:ompi-c pkg:ompi"
AS_IF([test "x$MPICC" != x],
  [trm_mpi_order="wrapper $trm_mpi_order"],
  [AC_PATH_PROGS([MPICC], [mpicc mpiicc mpiicx mpicc.mpich mpicc.openmpi])
   TRM_OUTSIDE_SYSTEM([$MPICC], [trm_mpi_order="wrapper $trm_mpi_order"], [:])])
# First without flags: CC may be a wrapper, or the flags are the user's.
trm_mpi_order="given $trm_mpi_order"

AC_MSG_CHECKING([for MPI 3.1 or newer])
trm_have_mpi=no
trm_mpi_user_cflags=$MPI_CFLAGS
trm_mpi_user_libs=$MPI_LIBS
trm_save_CFLAGS=$CFLAGS
trm_save_LIBS=$LIBS
for trm_mpi_from in $trm_mpi_order; do
  trm_try_cflags=; trm_try_libs=
  case $trm_mpi_from in
    given)
      trm_try_cflags=$trm_mpi_user_cflags; trm_try_libs=$trm_mpi_user_libs ;;
    pkg:*)
      trm_module=`echo $trm_mpi_from | sed 's/^pkg://'`
      TRM_PKG([$trm_module], [trm_try_cflags], [trm_try_libs])
      test $trm_pkg = yes || continue ;;
    wrapper)
      test "x$MPICC" != x || continue
      trm_line=`$MPICC -show 2>/dev/null`
      test "x$trm_line" != x || continue
      TRM_WRAPPER_FLAGS([$trm_line], [trm_try_cflags], [trm_try_libs]) ;;
  esac
  CFLAGS="$trm_save_CFLAGS $trm_try_cflags"
  LIBS="$trm_try_libs $trm_save_LIBS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#if MPI_VERSION < 3 || (MPI_VERSION == 3 && MPI_SUBVERSION < 1)
#error MPI is older than 3.1
#endif
]], [[
MPI_Win win;
void *base;
return MPI_Win_allocate_shared(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
]])], [trm_have_mpi=yes])
  test $trm_have_mpi = yes && break
  # Flags given by the user that do not work are an error: no other MPI may be used instead.
  AS_IF([test "$trm_mpi_from" = given && test "x$trm_mpi_given" != x], [break])
done
CFLAGS=$trm_save_CFLAGS
LIBS=$trm_save_LIBS

trm_mpi_kind=other
trm_mpi_version=
AS_IF([test $trm_have_mpi = yes],
  [MPI_CFLAGS=$trm_try_cflags
   MPI_LIBS=$trm_try_libs
   TRM_CPP_VALUE([trm_mpi_standard], [$MPI_CFLAGS], [mpi.h], [MPI_VERSION.MPI_SUBVERSION])
   TRM_CPP_VALUE([trm_value], [$MPI_CFLAGS], [mpi.h], [MPICH_VERSION])
   AS_CASE([$trm_value],
     [MPICH_VERSION|''], [],
     [trm_mpi_kind=mpich; trm_mpi_version="MPICH $trm_value"])
   TRM_CPP_VALUE([trm_value], [$MPI_CFLAGS], [mpi.h],
     [OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION])
   AS_CASE([$trm_value],
     [OMPI*|''], [],
     [trm_mpi_kind=openmpi; trm_mpi_version="Open MPI $trm_value"])
   trm_mpi_version="${trm_mpi_version:-unknown make} (MPI $trm_mpi_standard)"
   AS_CASE([$trm_mpi_from],
     [given], [trm_mpi_from="the compiler's or your own flags"],
     [pkg:*], [trm_mpi_from="pkg-config $trm_module"],
     [trm_mpi_from=$MPICC])
   AC_MSG_RESULT([$trm_mpi_version, from $trm_mpi_from])
   TRM_FIND_MPI_CUDA
   TRM_FIND_MPIEXEC],
  [AC_MSG_RESULT([no])
   AS_IF([test "x$trm_mpi_given" != x],
     [TRM_MISSING([MPI 3.1 or newer: MPI_CFLAGS/MPI_LIBS are set, but do not work (see config.log)],
        [mpich libmpich-dev], [module load mpich    (and unset both variables)])],
     [TRM_MISSING([MPI 3.1 or newer (mpi.h and its library)],
        [mpich libmpich-dev],
        [module load mpich    (or openmpi, cray-mpich, intel-mpi), or ./configure CC=mpicc])])])
])

# TRM_FIND_MPI_CUDA
# -----------------
# The function that says at run time whether the library takes a GPU's memory: MPICH's, or Open MPI's.
AC_DEFUN([TRM_FIND_MPI_CUDA], [
trm_mpi_cuda=no
CFLAGS="$trm_save_CFLAGS $MPI_CFLAGS"
LIBS="$MPI_LIBS $trm_save_LIBS"
AC_MSG_CHECKING([how MPI says whether it takes a GPU's memory])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]],
    [[int yes; return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &yes)]])],
  [trm_mpi_cuda=MPIX_GPU_query_support
   AC_DEFINE([HAVE_MPIX_GPU_QUERY_SUPPORT], [1], [Define if MPI has MPIX_GPU_query_support.])],
  [AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#include <mpi-ext.h>
]], [[return MPIX_Query_cuda_support()]])],
    [trm_mpi_cuda=MPIX_Query_cuda_support
     AC_DEFINE([HAVE_MPIX_QUERY_CUDA_SUPPORT], [1], [Define if mpi-ext.h has MPIX_Query_cuda_support.])])])
AC_MSG_RESULT([$trm_mpi_cuda])
CFLAGS=$trm_save_CFLAGS
LIBS=$trm_save_LIBS
])

# TRM_FIND_MPIEXEC
# -----------
# The launcher of another MPI starts N singletons instead of one job of N, so the library's own launcher is searched
# first, in the folder of its compiler wrapper and by its own name.
AC_DEFUN([TRM_FIND_MPIEXEC], [
AS_IF([test "x$MPIEXEC" = x],
  [trm_mpi_bin=`echo "$MPICC" | sed -n 's,/[[^/]]*$,,p'`
   AS_CASE([$trm_mpi_kind],
     [mpich],   [trm_param_names="mpiexec.mpich mpiexec.hydra mpiexec mpirun"],
     [openmpi], [trm_param_names="mpiexec.openmpi mpiexec mpirun"],
     [trm_param_names="mpiexec mpirun"])
   AC_PATH_PROGS([MPIEXEC], [$trm_param_names srun], [],
     [${trm_mpi_bin:+$trm_mpi_bin$PATH_SEPARATOR}$PATH])])
AC_MSG_CHECKING([whether mpiexec belongs to this MPI])
AS_IF([test "x$MPIEXEC" = x],
  [AC_MSG_RESULT([there is none])
   TRM_NOTE([no mpiexec: make check cannot run (Debian: mpich)])],
  [trm_value=`$MPIEXEC --version 2>/dev/null </dev/null | tr '\n' ' '`
   AS_CASE([$trm_mpi_kind:$trm_value],
     [mpich:*Open?MPI*|mpich:*OpenRTE*|openmpi:*HYDRA*|openmpi:*MPICH*],
       [AC_MSG_RESULT([no])
        TRM_NOTE([$MPIEXEC belongs to another MPI than $trm_mpi_version: set MPIEXEC])],
     [AC_MSG_RESULT([yes])])])
])

# TRM_FIND_UCX
# -------------
# MPICH over UCX busy-waits when oversubscribed; mpi/ucx_yield.c replaces ucp_worker_progress in every program. It is
# linked only if the MPI library calls that function.
AC_DEFUN([TRM_FIND_UCX], [
AC_ARG_ENABLE([ucx-yield],
  [AS_HELP_STRING([--disable-ucx-yield],
     [never yield the core inside MPICH's UCX progress function])],
  [], [enable_ucx_yield=auto])
trm_mpich_ucx=no
AS_IF([test $trm_have_mpi = yes && test $trm_mpi_kind = mpich && test "x$enable_ucx_yield" != xno],
  [AC_MSG_CHECKING([whether MPICH stands on UCX])
   AS_IF([test "x$enable_ucx_yield" = xyes],
     [trm_mpich_ucx=yes],
     [trm_save_CFLAGS=$CFLAGS
      trm_save_LIBS=$LIBS
      CFLAGS="$CFLAGS $MPI_CFLAGS"
      LIBS="$MPI_LIBS $LIBS"
      # The program defines the function: the linker then exports it exactly if a shared library references it.
      AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
unsigned ucp_worker_progress(void *worker);
unsigned ucp_worker_progress(void *worker) { return worker != 0; }
]], [[return MPI_Init(0, 0)]])],
        [trm_nm=${NM:-nm}
         trm_mpi_so=`ldd ./conftest$ac_exeext 2>/dev/null |
           sed -n 's,.* => \(/.*/libmpi[[a-z]]*\.so[[^ ]]*\).*,\1,p' | sed 1q`
         AS_IF([test "x$trm_mpi_so" != x && test -r "$trm_mpi_so"],
           [$trm_nm -D "$trm_mpi_so" 2>/dev/null | grep ' U ucp_worker_progress' >/dev/null &&
              trm_mpich_ucx=yes],
           [$trm_nm -D ./conftest$ac_exeext 2>/dev/null | grep ' T ucp_worker_progress' >/dev/null &&
              trm_mpich_ucx=yes])])
      CFLAGS=$trm_save_CFLAGS
      LIBS=$trm_save_LIBS])
   AC_MSG_RESULT([$trm_mpich_ucx])])
trm_pc_sources=
AS_IF([test $trm_mpich_ucx = yes], [trm_pc_sources='${datadir}/trireme/ucx_yield.c'])
AC_SUBST([trm_pc_sources])
AM_CONDITIONAL([TRM_MPICH_UCX], [test $trm_mpich_ucx = yes])
])
