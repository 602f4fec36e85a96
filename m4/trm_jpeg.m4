# libjpeg (libjpeg-turbo) reads JPEG files in "trireme data import images". Its header needs stdio.h before it.
AC_DEFUN([TRM_FIND_JPEG], [
trm_jpeg_CPPFLAGS=$CPPFLAGS
CPPFLAGS="$CPPFLAGS -include stdio.h"
TRM_OPTIONAL([JPEG], [libjpeg], [jpeg], [jpeglib.h], [jpeg_read_header], [libjpeg], [libjpeg62-turbo-dev])
CPPFLAGS=$trm_jpeg_CPPFLAGS
])
