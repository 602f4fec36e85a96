# libpng reads PNG files in "trireme data import images".
AC_DEFUN([TRM_FIND_PNG], [
TRM_OPTIONAL([PNG], [libpng], [png], [png.h], [png_create_read_struct], [libpng], [libpng-dev])
])
