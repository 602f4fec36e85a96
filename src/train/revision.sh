#!/bin/sh
# Prints src/train/revision.h: the commit of the source, for record.json, and the version of the program that is built
# from it, for trireme --version; nothing where neither git nor the file `revision` of a source archive (make dist) has
# the commit.
#   revision.sh SOURCE VERSION    VERSION: that of configure.ac
#
#   git describe           version         with changes that are not committed: -dirty, .dirty
#   v0.1.0                 0.1.0
#   v0.1.0-12-g0123abcd    0.1.0+12.g0123abcd
#   0123abcd               0.1.0+g0123abcd   without a tag of this version
revision=
test ! -e "$1/.git" || revision=$(cd "$1" && git describe --always --dirty --tags --match "v$2" 2> /dev/null)
test -n "$revision" || test ! -e "$1/revision" || revision=$(cat "$1/revision")
test -n "$revision" || exit 0
case $revision in
  unknown) suffix= ;;
  "v$2"*) suffix=${revision#"v$2"} ;;
  *) suffix=-g$revision ;;
esac
echo "#define TRM_REVISION \"$revision\""
echo "#define TRM_BUILD_VERSION \"$2$(echo "$suffix" | sed 's/-/+/; s/-/./g')\""
