# librsvg and cairo turn the pictures of "trireme report" into PDF and PNG. The program loads the library when it is
# asked for one: a rank of a job does not start with it.
AC_DEFUN([TRM_FIND_RSVG], [
TRM_OPTIONAL([RSVG], [librsvg-2.0], [rsvg-2], [librsvg/rsvg.h], [rsvg_handle_render_document],
  [librsvg], [librsvg2-dev])
])
