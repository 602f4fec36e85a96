# Helpers the trm_*.m4 files share.

# TRM_INIT
# --------
# Finds pkg-config itself, so that autoreconf does not need pkg.m4.
AC_DEFUN([TRM_INIT], [
AC_ARG_VAR([PKG_CONFIG], [path of pkg-config])
AS_IF([test "x$PKG_CONFIG" = x],
      [AC_PATH_PROGS([PKG_CONFIG], [pkg-config pkgconf])])
trm_missing=
trm_notes=
])

# TRM_MISSING(WHAT, DEBIAN PACKAGES, ON A CLUSTER WITH MODULES)
# -------------------------------------------------------------
# Records a missing required part. TRM_REQUIRE reports all of them at once.
AC_DEFUN([TRM_MISSING], [
trm_missing="$trm_missing
  * $1
      Debian, Ubuntu:       apt-get install $2
      cluster with modules: $3
"])

# TRM_NOTE(TEXT): a remark for the summary.
AC_DEFUN([TRM_NOTE], [trm_notes="$trm_notes
    - $1"])

# TRM_REQUIRE: stop if any required part is missing.
AC_DEFUN([TRM_REQUIRE], [
AS_IF([test "x$trm_missing" != x],
  [AC_MSG_ERROR([cannot build Trireme: required parts are missing.
$trm_missing
Then run configure again. ./configure --help lists the variables that point it
at parts in unusual places; config.log has the details of each check.])])
])

# TRM_PKG(MODULE, CFLAGS-VARIABLE, LIBS-VARIABLE)
# -----------------------------------------------
# Sets the two shell variables and trm_pkg=yes if pkg-config knows MODULE,
# else trm_pkg=no. MODULE may be a shell word.
AC_DEFUN([TRM_PKG], [
trm_pkg=no
AS_IF([test "x$PKG_CONFIG" != x && $PKG_CONFIG --exists $1 2>/dev/null],
  [trm_pkg=yes
   $2=`$PKG_CONFIG --cflags $1 2>/dev/null`
   $3=`$PKG_CONFIG --libs $1 2>/dev/null`])
])

# TRM_WRAPPER_FLAGS(COMMAND LINE, CFLAGS-VARIABLE, LIBS-VARIABLE)
# ---------------------------------------------------------------
# Parses the output of "mpicc -show" or "h5pcc -show". Only paths, macros and libraries are kept; the optimization
# flags are those of the wrapper's builder.
AC_DEFUN([TRM_WRAPPER_FLAGS], [
$2=; $3=; trm_next=compiler
for trm_word in $1; do
  case $trm_next in
    compiler) trm_next=; continue ;;
    cflags)   $2="$$2 $trm_word"; trm_next=; continue ;;
    libs)     $3="$$3 $trm_word"; trm_next=; continue ;;
  esac
  case $trm_word in
    -I|-isystem|-D)   $2="$$2 $trm_word"; trm_next=cflags ;;
    -I*|-isystem*|-D*) $2="$$2 $trm_word" ;;
    -pthread)         $2="$$2 $trm_word"; $3="$$3 $trm_word" ;;
    -Xlinker|-L|-l|-framework) $3="$$3 $trm_word"; trm_next=libs ;;
    -L*|-l*|-Wl,*|*.a|*.so|*.so.*|*.dylib) $3="$$3 $trm_word" ;;
  esac
done
])

# TRM_OUTSIDE_SYSTEM(PROGRAM PATH, IF SO, ELSE)
# ---------------------------------------------
# A wrapper outside the system's folders means that the user loaded a module or set PATH: it then has precedence over
# pkg-config.
AC_DEFUN([TRM_OUTSIDE_SYSTEM], [
case $1 in
  ''|/usr/bin/*|/bin/*) $3 ;;
  *) $2 ;;
esac
])

# TRM_CPP_VALUE(VARIABLE, CFLAGS, HEADER, TOKENS)
# -----------------------------------------------
# VARIABLE = TOKENS after preprocessing with HEADER; spaces and quotes removed.
AC_DEFUN([TRM_CPP_VALUE], [
trm_save_CPPFLAGS=$CPPFLAGS
CPPFLAGS="$CPPFLAGS $2"
AC_LANG_CONFTEST([AC_LANG_SOURCE([[#include <$3>
trm_value_begins $4 trm_value_ends
]])])
# The preprocessor may insert line markers: join the lines first.
$1=`(eval "$ac_cpp conftest.$ac_ext") 2>/dev/null | sed '/^#/d' | tr '\n' ' ' |
    sed -n 's/.*trm_value_begins \(.*\) trm_value_ends.*/\1/p' | tr -d ' "'`
rm -f conftest.$ac_ext
CPPFLAGS=$trm_save_CPPFLAGS
])

# TRM_CC_FLAG(VARIABLE, FLAG): append FLAG to VARIABLE if the compiler accepts it. -Werror, because clang only warns
# about unknown flags.
AC_DEFUN([TRM_CC_FLAG], [
AC_MSG_CHECKING([whether $CC takes $2])
trm_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -Werror $2"
AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
  [AC_MSG_RESULT([yes]); $1="$$1 $2"], [AC_MSG_RESULT([no])])
CFLAGS=$trm_save_CFLAGS
])

# TRM_OPTIONAL(VARIABLE PREFIX, PKG-CONFIG MODULE, LIBRARY, HEADER, FUNCTION, NAME)
# -------------------------------------------------------------------------------
# Finds an optional library: PREFIX_CFLAGS and PREFIX_LIBS from the user, else from pkg-config, else -lLIBRARY. Sets
# trm_have_PREFIX and trm_version_PREFIX, and defines HAVE_PREFIX. --without-NAME disables it.
AC_DEFUN([TRM_OPTIONAL], [
AC_ARG_VAR([$1_CFLAGS], [compiler flags for $6])
AC_ARG_VAR([$1_LIBS], [linker flags for $6])
AC_ARG_WITH([$6], [AS_HELP_STRING([--without-$6], [build without $6])], [], [m4_translit([with_$6], [-], [_])=auto])
trm_have_$1=no
trm_version_$1=
AC_MSG_CHECKING([for $6])
AS_IF([test "x$m4_translit([with_$6], [-], [_])" != xno],
  [AS_IF([test "x$$1_CFLAGS$$1_LIBS" = x],
     [TRM_PKG([$2], [$1_CFLAGS], [$1_LIBS])
      AS_IF([test $trm_pkg = yes],
        [trm_version_$1=`$PKG_CONFIG --modversion $2`],
        [$1_LIBS=-l$3])])
   trm_save_CFLAGS=$CFLAGS
   trm_save_LIBS=$LIBS
   CFLAGS="$CFLAGS $$1_CFLAGS"
   LIBS="$$1_LIBS $LIBS"
   AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <stddef.h>
#include <$4>
]], [[return (int)(size_t)&$5]])],
     [trm_have_$1=yes
      AC_DEFINE([HAVE_$1], [1], [Define if $6 is there.])],
     [$1_CFLAGS=; $1_LIBS=])
   CFLAGS=$trm_save_CFLAGS
   LIBS=$trm_save_LIBS])
AC_MSG_RESULT([$trm_have_$1 $trm_version_$1])
AS_IF([test "x$m4_translit([with_$6], [-], [_])" = xyes && test $trm_have_$1 = no],
  [TRM_MISSING([$6 (asked for with --with-$6)], [$7], [module load $6])])
])
