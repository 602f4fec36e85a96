#!/bin/bash
# Versions: of a source archive, a checkout and a tag; one in all files. Recipes of packages: they name the program's
# version, their syntax is that of their tools, they need the packages that bootstrap installs; the environment module
# sets what a program needs.
set -u
. "$top_srcdir/tests/lib.sh"
top=$(realpath "$top_srcdir")
build=$(realpath "${top_builddir:-$top_srcdir/build}")
TRIREME=$(realpath "$TRIREME")
scratch
built=$("$TRIREME" --version | sed -n '1s/trireme //p')
version=${built%%+*}

# of SOURCE: what revision.sh says of it
of() { sh "$top/src/train/revision.sh" "$1" "$version" | sed -n 's/.*_VERSION "\(.*\)"/\1/p'; }
if command -v git > /dev/null; then
  repository() { git -C source -c user.name=test -c user.email=test@localhost "$@" > git.log 2>&1 ||
    { cat git.log; fail "git $*"; }; }
  mkdir source && repository init -q && echo 1 > source/file && repository add file && repository commit -qm one
  commit=$(git -C source rev-parse --short HEAD)
  [ "$(of source)" = "$version+g$commit" ] || fail "a checkout without tags: $(of source)"
  repository tag v9.9.9 && [ "$(of source)" = "$version+g$commit" ] || fail "another version's tag: $(of source)"
  repository tag "v$version" && [ "$(of source)" = "$version" ] || fail "the tag v$version: $(of source)"
  echo 2 > source/file
  [ "$(of source)" = "$version+dirty" ] || fail "changes: $(of source)"
  repository commit -qam two && commit=$(git -C source rev-parse --short HEAD)
  [ "$(of source)" = "$version+1.g$commit" ] || fail "a commit after the tag: $(of source)"
  pass "versions of checkouts"
else
  echo "SKIPPED: versions of checkouts (no git)"
fi
mkdir archive && [ -z "$(of archive)" ] || fail "a source without a commit"
for pair in "v$version $version" "v$version-3-g0123abc $version+3.g0123abc" "0123abc-dirty $version+g0123abc.dirty" \
  "unknown $version"; do
  echo "${pair% *}" > archive/revision
  [ "$(of archive)" = "${pair#* }" ] || fail "an archive of ${pair% *}: $(of archive)"
done
if [ ! -e "$top/.git" ]; then
  [ "$built" = "$(of "$top")" ] || fail "trireme --version: $built, not $(of "$top")"
fi
case $built in "$version" | "$version"+*[0-9a-z]) ;; *) fail "trireme --version: $built" ;; esac
pass "versions of archives; this one is $built"

has() { # has FILE TEXT
  grep -qF -- "$2" "$top/packaging/$1" || fail "packaging/$1: not \"$2\""
}
has spack/package.py "version(\"$version\")"
has debian/changelog "trireme ($version)"
[ -f "$top/packaging/easybuild/trireme-$version-foss-2023b.eb" ] && has "easybuild/trireme-$version-foss-2023b.eb" \
  "version = '$version'" || fail "packaging/easybuild has another version than $version"
has ../CITATION.cff "version: $version"
has ../python/pyproject.toml "version = \"$version\""
has ../examples/mpijob.yaml "trireme:$version"
pass "the recipes, CITATION.cff and the reader for Python have the version of the program"

# the development packages of bootstrap, but for tests and tools of other builds
sed -n '/^needed=/,/"$/p' "$top/bootstrap" | tr -d '"' | sed 's/needed=//' | tr -s ' ' '\n' | grep -E -- '-dev$' |
  grep -v cunit > wanted
[ "$(wc -l < wanted)" -ge 10 ] || { cat wanted; fail "bootstrap names few packages"; }
while read -r package; do
  for file in debian/control container/Dockerfile container/trireme.def; do has "$file" "$package"; done
done < wanted
pass "they install the $(wc -l < wanted) libraries of bootstrap"

if command -v python3 > /dev/null; then
  for file in spack/package.py "easybuild/trireme-$version-foss-2023b.eb" reframe/trireme.py; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$top/packaging/$file" > log 2>&1 ||
      { cat log; fail "packaging/$file"; }
  done
  pass "recipes in Python have no error of syntax"
else
  echo "SKIPPED: syntax of the recipes in Python (no python3)"
fi
sed -n '/^%post/,/^%runscript/p' "$top/packaging/container/trireme.def" | sed '/^%/d' > post.sh
bash -n post.sh || fail "packaging/container/trireme.def: %post"
pass "the commands of trireme.def have no error of syntax"
if command -v dpkg-parsechangelog > /dev/null; then
  [ "$(dpkg-parsechangelog -l"$top/packaging/debian/changelog" -SVersion 2> log)" = "$version" ] && [ ! -s log ] ||
    { cat log; fail "packaging/debian/changelog"; }
  make -n -f "$top/packaging/debian/rules" override_dh_auto_configure > log 2>&1 ||
    { cat log; fail "packaging/debian/rules"; }
  pass "Debian's tools read the files"
else
  echo "SKIPPED: Debian's files (no dpkg-parsechangelog)"
fi

module=$build/packaging/$version
[ -f "$module" ] || fail "no $module"
! grep -q '@[a-z]*@' "$module" || fail "the module has places that are not filled in"
if command -v tclsh > /dev/null; then
  { echo 'proc module-whatis args {}; proc conflict args {}; proc prepend-path {name value} { puts "$name $value" }'
    cat "$module"; } | tclsh > set || fail "the module is no Tcl"
else
  sed -n 's/^prepend-path //p' "$module" > set
fi
for name in PATH LD_LIBRARY_PATH CPATH PKG_CONFIG_PATH MANPATH; do
  grep -q "^$name /" set || { cat set; fail "the module does not set $name"; }
done
pass "the environment module"
finish
