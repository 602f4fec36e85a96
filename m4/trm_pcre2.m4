# PCRE2 splits texts into words by Unicode character classes: byte pair encoding.
AC_DEFUN([TRM_FIND_PCRE2], [
trm_pcre2_CPPFLAGS=$CPPFLAGS
CPPFLAGS="$CPPFLAGS -DPCRE2_CODE_UNIT_WIDTH=8"
TRM_OPTIONAL([PCRE2], [libpcre2-8], [pcre2-8], [pcre2.h], [pcre2_compile], [pcre2], [libpcre2-dev])
CPPFLAGS=$trm_pcre2_CPPFLAGS
])
