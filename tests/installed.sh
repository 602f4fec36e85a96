#!/bin/bash
# The installed library as a user sees it. Every header compiles alone, in C and C++, and is part of trireme.h; only
# trm_ names are exported; version, license and guides are installed; the examples build with pkg-config and run.
# TRM_PREFIX: installation prefix (make installcheck). Without it the build is installed to a scratch folder.
. "$(dirname "$0")/lib.sh"
: "${top_builddir:=$top_srcdir/build}"
top_builddir=$(cd "$top_builddir" && pwd) top_srcdir=$(cd "$top_srcdir" && pwd)
made() { sed -n "s/^$1 = //p" "$top_builddir/Makefile"; } # a variable of the Makefile
unset MAKEFLAGS MAKELEVEL MFLAGS
scratch
[ -z "$(made TRM_SANITIZE)" ] || skip "a sanitizer's library cannot be linked to other programs"
if [ -z "${TRM_PREFIX-}" ]; then
  TRM_PREFIX=$work/usr
  make -s -C "$top_builddir" install prefix="$TRM_PREFIX" > install.log 2>&1 || { cat install.log; fail "make install"; }
fi
prefix=$TRM_PREFIX
library=$(find "$prefix" -name 'libtrireme.so*' -type f)
export PKG_CONFIG_PATH=${library%/*}/pkgconfig
pkg_config() { ${PKG_CONFIG:-pkg-config} --define-variable=prefix="$prefix" "$@"; }
cc="$(made CC) -std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror"
cxx="${CXX:-g++} -std=c++11 -Wall -Wextra -Werror"
command -v "${CXX:-g++}" > /dev/null || cxx=

headers=$(cd "$prefix/include/trireme" && find . -name '*.h' | sed 's,^\./,,')
for header in $headers; do
  echo "#include <trireme/$header>" > header.c
  # shellcheck disable=SC2046,SC2086 # lists of words
  $cc $(pkg_config --cflags trireme) -fsyntax-only header.c || fail "$header does not compile alone"
  [ -z "$cxx" ] || $cxx $(pkg_config --cflags trireme) -fsyntax-only -x c++ header.c || fail "$header is not C++"
  [ "$header" = trireme.h ] || grep -q "\"$header\"" "$prefix/include/trireme/trireme.h" ||
    fail "trireme.h does not include $header"
done
pass "$(echo "$headers" | wc -l) headers, each alone, in C${cxx:+ and C++}"

cat > version.c << 'EOF'
#include <stdio.h>
#include <trireme/trireme.h>
int main(void)
{
  printf("%s %d", TRM_VERSION, TRM_VERSION_NUMBER + (int)trm_error_text()[0]);
  return 0;
}
EOF
version=$(pkg_config --modversion trireme)
number=$(echo "$version" | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
for compile in "$cc" ${cxx:+"$cxx -x c++"}; do
  # shellcheck disable=SC2046,SC2086
  $compile $(pkg_config --cflags trireme) version.c -o version $(pkg_config --libs trireme) \
    -Wl,-rpath,"${library%/*}" || fail "a program cannot be linked: $compile"
  [ "$(./version)" = "$version $number" ] || fail "core/api.h says $(./version), trireme.pc $version $number"
done
# the program's may have the commit behind it: 0.1.0+g0123abcd
"$prefix/bin/trireme" --version | sed 1q | grep -qE "^trireme ${version//./\\.}(\+[0-9a-z.]+)?$" ||
  fail "trireme --version: not $version"
pass "version $version in headers, pkg-config and program, linked from C${cxx:+ and C++}"

wrong=$(nm -D --defined-only "$library" | awk '$2 != "A" && $3 !~ /^trm_/ { print $3 }')
[ -z "$wrong" ] || fail "the library exports names without trm_: $wrong"
[ "$(nm -D --defined-only "$library" | grep -c ' T trm_')" -gt 100 ] || fail "the library exports too little"
readelf -d "$library" | grep -q 'SONAME.*libtrireme\.so\.[0-9]' || fail "no SONAME"
pass "only trm_ names are exported; SONAME"

documents=$prefix/share/doc/trireme
for file in LICENSE README.md CONTRIBUTING.md CHANGELOG.md GLOSSARY.md mpi/README.md datasets/README.md; do
  [ -s "$documents/$file" ] || fail "$file is not installed"
done
pass "license and guides are installed"

cp "$documents"/examples/* .
PATH=$prefix/bin:$PATH make CC="$(made CC)" MPIEXEC="$MPIEXEC" CFLAGS="-O1 -Wall -Wextra -Wshadow -Werror" \
  PKG_CONFIG="${PKG_CONFIG:-pkg-config} --define-variable=prefix=$prefix" check > examples.log 2>&1 ||
  { cat examples.log; fail "examples"; }
for name in $(cd "$documents/examples" && ls ./*.c); do
  grep "^$(basename "$name" .c): ok" examples.log || { cat examples.log; fail "$name did not report success"; }
done
pass "the examples are built and give the expected results"
lines=$(wc -l < train_mlp.c)
[ "$lines" -lt 60 ] || fail "train_mlp.c has $lines lines: a program that trains has fewer than 60"
pass "a program that trains has $lines lines"
finish
