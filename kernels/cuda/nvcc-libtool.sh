#!/bin/sh
# nvcc as a compiler for libtool: passes on the options that libtool has for the host's compiler.
# Usage: nvcc-libtool.sh NVCC ARGUMENTS
n=$#
while [ $n -gt 0 ]; do
  argument=$1
  shift
  n=$((n - 1))
  case $argument in
    -fPIC | -fpic | -fPIE | -pthread | -fvisibility=* | -f[ns]* | -W[a-z]* | -m[a-z]*=* | -g[0-9])
      set -- "$@" "-Xcompiler=$argument" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "$@"
