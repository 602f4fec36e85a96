# zlib reads compressed downloads (.gz) in "trireme data import".
AC_DEFUN([TRM_FIND_ZLIB], [
TRM_OPTIONAL([ZLIB], [zlib], [z], [zlib.h], [gzopen], [zlib], [zlib1g-dev])
])
