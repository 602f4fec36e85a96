# Compiler flags: the language, what the loops need to vectorise, warnings, and
# the switches --enable-native, --enable-werror and --enable-sanitizer.

# TRM_C11: the compiler must be a C11 compiler with GNU extensions.
AC_DEFUN([TRM_C11], [
AC_MSG_CHECKING([whether $CC compiles C11])
trm_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -std=gnu11"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <stdatomic.h>
#include <stdalign.h>
_Static_assert(sizeof(long) >= 4, "C11");
static _Atomic int counter;
static alignas(64) float data[16];
]], [[return _Generic(data[0], float: atomic_load(&counter), default: 1)]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   TRM_MISSING([a C11 compiler (gcc 5 or newer, clang 6 or newer)],
     [build-essential], [module load gcc])])
CFLAGS=$trm_save_CFLAGS
])

# TRM_CXX17: whether the C++ compiler, which only the module for GPUs and its tests need, compiles C++17.
AC_DEFUN([TRM_CXX17], [
AC_LANG_PUSH([C++])
trm_save_CXXFLAGS=$CXXFLAGS
CXXFLAGS="$CXXFLAGS -std=c++17"
AC_MSG_CHECKING([whether $CXX compiles C++17])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <functional>
#include <tuple>]], [[std::tuple<int> x(1); return std::apply([](auto a) { return a; }, x) - 1]])],
  [trm_cxx_works=yes], [trm_cxx_works=no])
AC_MSG_RESULT([$trm_cxx_works])
AC_SUBST([trm_cxx_works])
CXXFLAGS=$trm_save_CXXFLAGS
AC_LANG_POP([C++])
])

# TRM_FLAGS: sets TRM_CFLAGS and TRM_LDFLAGS. Runs after the dependencies, so that -Werror and sanitizers do not affect
# their checks.
AC_DEFUN([TRM_FLAGS], [
TRM_CFLAGS=-std=gnu11
TRM_LDFLAGS=

# No -ffast-math: results must not depend on the compiler. These two flags only state that errno and the floating-point
# flags are not read after arithmetic; loops with sqrtf or comparisons need them to vectorize.
TRM_CC_FLAG([TRM_CFLAGS], [-fno-math-errno])
TRM_CC_FLAG([TRM_CFLAGS], [-fno-trapping-math])
# No contraction of a * b + c: it would be the compiler's choice, so that elements differ between a vector loop and its
# remainder, and steps with the division of arrays over ranks.
TRM_CC_FLAG([TRM_CFLAGS], [-ffp-contract=off])
# "#pragma omp simd" is used even without an OpenMP library.
TRM_CC_FLAG([TRM_CFLAGS], [-fopenmp-simd])

for trm_flag in -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla; do
  TRM_CC_FLAG([TRM_CFLAGS], [$trm_flag])
done
AS_IF([test "x$trm_have_openmp" != xyes],
  [TRM_CC_FLAG([TRM_CFLAGS], [-Wno-unknown-pragmas])])

# gcc 12 at -O3 warns of a write through MPICH's MPI_STATUSES_IGNORE, which is the address 1. The warning is turned off
# only there.
AC_MSG_CHECKING([whether the compiler misjudges MPI_STATUSES_IGNORE])
trm_save_CFLAGS=$CFLAGS
CFLAGS="$MPI_CFLAGS -O3 -Wall -Werror=stringop-overflow"
AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#include <mpi.h>
int wait_two(MPI_Request *r);
int wait_two(MPI_Request *r) { return MPI_Waitall(2, r, MPI_STATUSES_IGNORE); }
]])], [AC_MSG_RESULT([no])],
  [AC_MSG_RESULT([yes, turning -Wstringop-overflow off])
   trm_stringop=yes])
CFLAGS=$trm_save_CFLAGS
AS_IF([test "x$trm_stringop" = xyes],
  [TRM_CC_FLAG([TRM_CFLAGS], [-Wno-stringop-overflow])])

AC_ARG_ENABLE([native],
  [AS_HELP_STRING([--enable-native],
     [compile everything for this very processor (-march=native); the result may
      not run on other nodes. Without it the kernels choose at run time])],
  [], [enable_native=no])
AS_IF([test "x$enable_native" != xno],
  [trm_native=
   TRM_CC_FLAG([trm_native], [-march=native])
   AS_IF([test "x$trm_native" = x], [TRM_CC_FLAG([trm_native], [-mcpu=native])])
   TRM_CFLAGS="$TRM_CFLAGS$trm_native"])

AC_ARG_ENABLE([sanitizer],
  [AS_HELP_STRING([--enable-sanitizer=LIST],
     [build with -fsanitize=LIST: address,undefined or thread])],
  [], [enable_sanitizer=no])
AS_CASE([$enable_sanitizer],
  [no], [],
  [yes], [enable_sanitizer=address,undefined])
AS_IF([test "x$enable_sanitizer" != xno],
  [trm_sanitize="-fsanitize=$enable_sanitizer -fno-omit-frame-pointer"
   AS_CASE([$enable_sanitizer],
     [*undefined*], [trm_sanitize="$trm_sanitize -fno-sanitize-recover=undefined"])
   trm_sanitizer_works=
   TRM_CC_FLAG([trm_sanitizer_works], [$trm_sanitize])
   AS_IF([test "x$trm_sanitizer_works" = x],
     [AC_MSG_ERROR([$CC cannot build with -fsanitize=$enable_sanitizer (clang needs libclang-rt-dev)])])
   TRM_CFLAGS="$TRM_CFLAGS $trm_sanitize"
   # clang then cannot vectorize "#pragma omp simd" loops, and warns.
   TRM_CC_FLAG([TRM_CFLAGS], [-Wno-pass-failed])
   TRM_LDFLAGS="$TRM_LDFLAGS $trm_sanitize"])
AC_SUBST([TRM_SANITIZE], [$trm_sanitize])
AM_CONDITIONAL([TRM_SANITIZER], [test "x$enable_sanitizer" != xno])

AC_ARG_ENABLE([werror],
  [AS_HELP_STRING([--enable-werror], [treat warnings as errors])],
  [], [enable_werror=no])
AS_IF([test "x$enable_werror" != xno], [TRM_CFLAGS="$TRM_CFLAGS -Werror"])

# For the record of a run.
trm_flags=`AS_ECHO(["$CFLAGS $TRM_CFLAGS $OPENMP_CFLAGS"]) | sed 's/[[\\"]]/\\&/g'`
AC_DEFINE_UNQUOTED([TRM_COMPILER_FLAGS], ["$trm_flags"], [Flags of the compiler.])
AC_SUBST([TRM_CFLAGS])
AC_SUBST([TRM_LDFLAGS])
])
