# oneDNN: matrix products, also in bfloat16. It must use OpenMP's threads or none, because OpenMP sets their number to
# one.
AC_DEFUN([TRM_FIND_ONEDNN], [
AS_IF([test "$trm_have_openmp" != yes], [with_onednn=no])
TRM_OPTIONAL([ONEDNN], [dnnl], [dnnl], [dnnl.h], [dnnl_sgemm], [onednn], [libdnnl-dev])
AM_CONDITIONAL([TRM_ONEDNN], [test $trm_have_ONEDNN = yes])
AS_IF([test $trm_have_ONEDNN = yes && test "x$trm_version_ONEDNN" = x],
  [TRM_CPP_VALUE([trm_version_ONEDNN], [$ONEDNN_CFLAGS], [dnnl_version.h],
     [DNNL_VERSION_MAJOR.DNNL_VERSION_MINOR.DNNL_VERSION_PATCH])])
])
