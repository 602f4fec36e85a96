# HDF5 with parallel I/O, built with the same MPI. Comes after TRM_FIND_MPI.
#
# Results: HDF5_CFLAGS, HDF5_LIBS; trm_hdf5_version, trm_hdf5_from.

AC_DEFUN([TRM_FIND_HDF5], [
AC_ARG_VAR([H5PCC], [HDF5 parallel compiler wrapper whose flags are taken])
AC_ARG_VAR([HDF5_CFLAGS], [compiler flags for parallel HDF5])
AC_ARG_VAR([HDF5_LIBS], [linker flags for parallel HDF5])

AS_CASE([$trm_mpi_kind],
  [openmpi], [trm_hdf5_pkgs="pkg:hdf5-openmpi pkg:hdf5-mpi pkg:hdf5"],
  [mpich],   [trm_hdf5_pkgs="pkg:hdf5-mpich pkg:hdf5-mpi pkg:hdf5"],
  [trm_hdf5_pkgs="pkg:hdf5-mpi pkg:hdf5"])
trm_hdf5_order="$trm_hdf5_pkgs wrapper plain"
AS_IF([test "x$H5PCC" != x],
  [trm_hdf5_order="wrapper $trm_hdf5_order"],
  [AS_CASE([$trm_mpi_kind],
     [openmpi], [trm_param_names="h5pcc.openmpi h5pcc"],
     [mpich],   [trm_param_names="h5pcc.mpich h5pcc"],
     [trm_param_names=h5pcc])
   AC_PATH_PROGS([H5PCC], [$trm_param_names])
   TRM_OUTSIDE_SYSTEM([$H5PCC], [trm_hdf5_order="wrapper $trm_hdf5_order"], [:])])
trm_hdf5_given=
AS_IF([test "x$HDF5_CFLAGS$HDF5_LIBS" != x],
  [trm_hdf5_order=given
   trm_hdf5_given=": HDF5_CFLAGS/HDF5_LIBS are set, but do not work (see config.log)"])

AC_MSG_CHECKING([for HDF5 with parallel I/O])
# ok, serial (found, but without parallel I/O), othermpi, or no. The best reason found is kept for the message.
trm_have_hdf5=no
trm_save_CFLAGS=$CFLAGS
trm_save_LIBS=$LIBS
for trm_hdf5_from in $trm_hdf5_order; do
  trm_try_cflags=; trm_try_libs=-lhdf5
  case $trm_hdf5_from in
    given)
      trm_try_cflags=$HDF5_CFLAGS; trm_try_libs=${HDF5_LIBS:--lhdf5} ;;
    pkg:*)
      trm_module=`echo $trm_hdf5_from | sed 's/^pkg://'`
      TRM_PKG([$trm_module], [trm_try_cflags], [trm_try_libs])
      test $trm_pkg = yes || continue ;;
    wrapper)
      test "x$H5PCC" != x || continue
      trm_line=`$H5PCC -show 2>/dev/null`
      test "x$trm_line" != x || continue
      TRM_WRAPPER_FLAGS([$trm_line], [trm_try_cflags], [trm_try_libs])
      # h5pcc uses mpicc, so MPI's flags come from there.
      case " $trm_try_libs" in *hdf5*) ;; *) trm_try_libs="$trm_try_libs -lhdf5" ;; esac ;;
  esac
  AS_IF([test $trm_have_mpi != yes],
    [# hdf5.h needs mpi.h: without it the flags are all there is to go by.
     AS_CASE([$trm_hdf5_from], [pkg:hdf5|plain], [], [trm_have_hdf5=unchecked; break])
     continue])
  CFLAGS="$trm_save_CFLAGS $trm_try_cflags $MPI_CFLAGS"
  LIBS="$trm_try_libs $MPI_LIBS $trm_save_LIBS"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <hdf5.h>]], [[return (int)sizeof(hid_t)]])],
    [], [continue])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#include <hdf5.h>
#ifndef H5_HAVE_PARALLEL
#error HDF5 was built without parallel I/O
#endif
]], [[return H5Pset_fapl_mpio(0, MPI_COMM_WORLD, MPI_INFO_NULL) < 0]])],
    [# Two MPI libraries in one program crash at the first file: refuse here.
     trm_value=`ldd ./conftest$ac_exeext 2>/dev/null |
       sed -n 's|.* => .*/\(libmpi[[ch]]*\.so\.[[0-9]]*\).*|\1|p' | sort -u | wc -l`
     AS_IF([test "$trm_value" -gt 1], [trm_have_hdf5=othermpi], [trm_have_hdf5=yes])],
    [AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#include <hdf5.h>
#ifdef H5_HAVE_PARALLEL
#error parallel
#endif
]])], [test $trm_have_hdf5 = othermpi || trm_have_hdf5=serial])])
  test $trm_have_hdf5 = yes && break
done
CFLAGS=$trm_save_CFLAGS
LIBS=$trm_save_LIBS

AS_CASE([$trm_hdf5_from],
  [given], [trm_hdf5_from="your HDF5_CFLAGS and HDF5_LIBS"],
  [pkg:*], [trm_hdf5_from="pkg-config $trm_module"],
  [wrapper], [trm_hdf5_from=$H5PCC],
  [trm_hdf5_from="the compiler's own paths"])
trm_hdf5_debian=libhdf5-mpich-dev
test $trm_mpi_kind = openmpi && trm_hdf5_debian=libhdf5-openmpi-dev
trm_hdf5_module="module load hdf5-parallel    (or hdf5/...-parallel, phdf5, cray-hdf5-parallel), or set H5PCC"
AS_CASE([$trm_have_hdf5],
  [yes],
    [HDF5_CFLAGS=$trm_try_cflags
     HDF5_LIBS=$trm_try_libs
     TRM_CPP_VALUE([trm_hdf5_version], [$HDF5_CFLAGS $MPI_CFLAGS], [hdf5.h],
       [H5_VERS_MAJOR.H5_VERS_MINOR.H5_VERS_RELEASE])
     AC_MSG_RESULT([$trm_hdf5_version, from $trm_hdf5_from])],
  [unchecked], [AC_MSG_RESULT([not checked, MPI is missing])],
  [serial],
    [AC_MSG_RESULT([found, but it was built without parallel I/O])
     TRM_MISSING([HDF5 with parallel I/O: the HDF5 found was built without it (H5_HAVE_PARALLEL is not defined)],
       [$trm_hdf5_debian], [$trm_hdf5_module])],
  [othermpi],
    [AC_MSG_RESULT([found, but it was built with another MPI])
     TRM_MISSING([HDF5 with parallel I/O: the HDF5 found was built with another MPI than $trm_mpi_version],
       [$trm_hdf5_debian], [$trm_hdf5_module])],
  [AC_MSG_RESULT([no])
   TRM_MISSING([HDF5 with parallel I/O (hdf5.h and libhdf5, built with the same MPI)$trm_hdf5_given],
     [$trm_hdf5_debian], [$trm_hdf5_module])])
])
