# librsvg and cairo convert the pictures of "trireme report" to PDF and PNG. The program loads the library on demand,
# so that ranks of a job do not.
AC_DEFUN([TRM_FIND_RSVG], [
TRM_OPTIONAL([RSVG], [librsvg-2.0], [rsvg-2], [librsvg/rsvg.h], [rsvg_handle_render_document],
  [librsvg], [librsvg2-dev])
])
