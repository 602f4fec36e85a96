# oneDNN: a second library of matrix products, and the one with bfloat16. Its threads must
# be OpenMP's, or it must have none: we tell it through OpenMP to use one.
AC_DEFUN([TRM_FIND_ONEDNN], [
AS_IF([test "$trm_have_openmp" != yes], [with_onednn=no])
TRM_OPTIONAL([ONEDNN], [dnnl], [dnnl], [dnnl.h], [dnnl_sgemm], [onednn], [libdnnl-dev])
AM_CONDITIONAL([TRM_ONEDNN], [test $trm_have_ONEDNN = yes])
AS_IF([test $trm_have_ONEDNN = yes && test "x$trm_version_ONEDNN" = x],
  [TRM_CPP_VALUE([trm_version_ONEDNN], [$ONEDNN_CFLAGS], [dnnl_version.h],
     [DNNL_VERSION_MAJOR.DNNL_VERSION_MINOR.DNNL_VERSION_PATCH])])
])
