# CUDA: the module for GPUs (kernels/cuda), which the program loads at run time. --with-cuda=auto, yes, no, or DIR: nvcc
# in CUDA_HOME, in PATH, or in the usual folder. NVCC names the compiler; CUDA_LIBS overrides how the libraries are
# found. C++ is needed for it, and for the tests of it that run without a GPU. Each architecture takes nvcc its time:
# auto compiles for one, with PTX that drivers translate for all later ones; yes and DIR for those of CUDA_ARCHS.
AC_DEFUN([TRM_FIND_CUDA], [
AC_ARG_VAR([NVCC], [path of nvcc])
AC_ARG_VAR([NVCCFLAGS], [more flags for nvcc])
AC_ARG_VAR([CUDA_LIBS], [linker flags for CUDA's runtime and cuBLAS])
AC_ARG_VAR([CUDA_ARCHS], [compute capabilities of the module, times ten (auto: "80", otherwise "75 80 90")])
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR],
  [build the module for GPUs with the CUDA in DIR (auto, the default: if nvcc is in CUDA_HOME, PATH or /usr/local/cuda;
   yes: it must be)])],
  [], [with_cuda=auto])
trm_have_cuda=no
trm_cuda_archs=
trm_cuda_missing="no nvcc in CUDA_HOME, PATH or /usr/local/cuda"
AS_CASE([$with_cuda],
  [no], [trm_cuda_missing="--without-cuda"],
  [auto], [test "x$CUDA_ARCHS" != x || CUDA_ARCHS=80],
  [test "x$CUDA_ARCHS" != x || CUDA_ARCHS="75 80 90"])
AS_CASE([$with_cuda],
  [no], [NVCC=],
  [auto|yes], [AS_IF([test "x$NVCC" = x],
     [AC_PATH_PROG([NVCC], [nvcc], [], [${CUDA_HOME:+$CUDA_HOME/bin:}$PATH:/usr/local/cuda/bin])])],
  [NVCC=$with_cuda/bin/nvcc])
AS_IF([test "x$NVCC" != x],
  [trm_cuda_root=`dirname "\`dirname "$NVCC"\`"`
   AS_CASE([$with_cuda], [no|auto|yes], [], [trm_cuda_root=$with_cuda])
   trm_cuda_lib=$trm_cuda_root/lib64
   test -d "$trm_cuda_lib" || trm_cuda_lib=$trm_cuda_root/lib
   test "x$CUDA_CPPFLAGS" != x || CUDA_CPPFLAGS="-isystem $trm_cuda_root/include"
   test "x$CUDA_LIBS" != x || CUDA_LIBS="-L$trm_cuda_lib -Wl,-rpath,$trm_cuda_lib -lcudart -lcublas -lcublasLt"
   AC_MSG_CHECKING([whether $NVCC works])
   TRM_CUDA_TRY],
  [AC_MSG_NOTICE([no module for GPUs: $trm_cuda_missing])])
AS_IF([test $trm_have_cuda = no],
  [AS_CASE([$with_cuda], [no|auto], [],
     [TRM_MISSING([CUDA (asked for with --with-cuda=$with_cuda)], [nvidia-cuda-toolkit], [module load cuda])])])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_CXX])
AC_SUBST([CUDA_GENCODE])
AM_CONDITIONAL([TRM_CUDA], [test $trm_have_cuda = yes])
AM_CONDITIONAL([TRM_CXX], [test "x$trm_cxx_works" = xyes])
])

# TRM_CUDA_TRY: the architectures that nvcc knows, of those that the module is made for (later processors of the same
# first digit run their code); the newest one also as PTX, which drivers translate for processors to come. Then a
# compilation and a link.
AC_DEFUN([TRM_CUDA_TRY], [
CUDA_GENCODE=
CUDA_CXX=${CXX#ccache }
CUDA_CXX=${CUDA_CXX%% *}
trm_cuda_known=`"$NVCC" --list-gpu-code 2>/dev/null`
for trm_arch in $CUDA_ARCHS; do
  AS_CASE([" "$trm_cuda_known" "], [*sm_$trm_arch*],
    [trm_cuda_archs="$trm_cuda_archs $trm_arch"
     CUDA_GENCODE="$CUDA_GENCODE -gencode=arch=compute_$trm_arch,code=sm_$trm_arch"
     trm_cuda_last=$trm_arch])
done
test "x$trm_cuda_last" = x ||
  CUDA_GENCODE="$CUDA_GENCODE -gencode=arch=compute_$trm_cuda_last,code=compute_$trm_cuda_last"
cat >conftest.cu <<'_TRM_EOF'
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
__global__ static void run(float *x) { x@<:@threadIdx.x@:>@ = 1; }
int main(void) { cublasHandle_t h; run<<<1, 1>>>(0); return cublasCreate(&h); }
_TRM_EOF
AS_IF([test "x$trm_cuda_last" != x && "$NVCC" $CUDA_CPPFLAGS -ccbin "$CUDA_CXX" -arch=sm_$trm_cuda_last -c \
         -o conftest.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1 &&
       $CXX -o conftest conftest.o $CUDA_LIBS >&AS_MESSAGE_LOG_FD 2>&1],
  [trm_have_cuda=yes
   trm_cuda_version=`"$NVCC" --version | sed -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`
   AC_MSG_RESULT([yes, $trm_cuda_version, for$trm_cuda_archs])],
  [AC_MSG_RESULT([no, see config.log])
   trm_cuda_missing="$NVCC does not compile and link for $CUDA_ARCHS (config.log)"])
rm -f conftest.cu conftest.o conftest
])
