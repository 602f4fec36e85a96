# protobuf-c and its compiler write ONNX files and TensorBoard's event files. Both must be of one release, so the check
# generates a message and compiles it.
AC_DEFUN([TRM_FIND_PROTOBUF_C], [
TRM_OPTIONAL([PROTOBUF_C], [libprotobuf-c], [protobuf-c], [protobuf-c/protobuf-c.h], [protobuf_c_message_pack],
  [protobuf-c], [libprotobuf-c-dev protobuf-c-compiler])
AC_ARG_VAR([PROTOC_C], [path of protoc-c, the compiler of protobuf-c])
trm_have_onnx=no
AS_IF([test $trm_have_PROTOBUF_C = yes],
  [AC_PATH_PROG([PROTOC_C], [protoc-c])
   AC_MSG_CHECKING([whether protoc-c fits protobuf-c])
   mkdir -p conftest.dir
   AS_ECHO(['syntax = "proto3"; message Conftest { repeated int64 number = 1; }']) > conftest.dir/conftest.proto
   trm_save_CFLAGS=$CFLAGS
   trm_save_LIBS=$LIBS
   CFLAGS="$CFLAGS -Iconftest.dir $PROTOBUF_C_CFLAGS"
   LIBS="$PROTOBUF_C_LIBS $LIBS"
   AS_IF([test "x$PROTOC_C" != x &&
          $PROTOC_C --proto_path=conftest.dir --c_out=conftest.dir conftest.proto >&AS_MESSAGE_LOG_FD 2>&1],
     [AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include "conftest.pb-c.h"
#include "conftest.pb-c.c"
]], [[return (int)conftest__get_packed_size(0)]])], [trm_have_onnx=yes])])
   CFLAGS=$trm_save_CFLAGS
   LIBS=$trm_save_LIBS
   rm -rf conftest.dir
   AC_MSG_RESULT([$trm_have_onnx])])
AS_IF([test $trm_have_onnx = yes],
  [AC_DEFINE([TRM_ONNX], [1], [Define if models can be written as ONNX files.])],
  [PROTOBUF_C_CFLAGS=; PROTOBUF_C_LIBS=])
AM_CONDITIONAL([TRM_ONNX], [test $trm_have_onnx = yes])
])
