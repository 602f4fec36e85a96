# The summary of configure: results and their effects.
AC_DEFUN([TRM_SUMMARY], [
trm_sum_openmp="yes ($OPENMP_CFLAGS)"
test "$trm_have_openmp" = yes || trm_sum_openmp="no: one thread per rank"
trm_sum_ucx=
test "$trm_mpich_ucx" = yes && trm_sum_ucx="
                 over UCX: programs yield the core while they wait (mpi/ucx_yield.c)"
trm_sum_onednn="yes $trm_version_ONEDNN: device.blas=onednn, products in bfloat16"
test "$trm_have_ONEDNN" = yes || trm_sum_onednn="no: float32 products only, by the BLAS (Debian: libdnnl-dev)"
trm_sum_yaml="yes $trm_version_LIBYAML: configuration files can be read"
test "$trm_have_LIBYAML" = yes || trm_sum_yaml="no: no configuration files, flags only (Debian: libyaml-dev)"
trm_sum_zlib="yes $trm_version_ZLIB: compressed files can be imported"
test "$trm_have_ZLIB" = yes || trm_sum_zlib="no: compressed files must be unpacked first (Debian: zlib1g-dev)"
trm_sum_png="yes $trm_version_PNG: PNG files can be imported"
test "$trm_have_PNG" = yes || trm_sum_png="no: no import of PNG files (Debian: libpng-dev)"
trm_sum_jpeg="yes $trm_version_JPEG: JPEG files can be imported"
test "$trm_have_JPEG" = yes || trm_sum_jpeg="no: no import of JPEG files (Debian: libjpeg62-turbo-dev)"
trm_sum_pcre2="yes $trm_version_PCRE2: texts can be imported as byte pairs"
test "$trm_have_PCRE2" = yes || trm_sum_pcre2="no: texts as characters or bytes only (Debian: libpcre2-dev)"
trm_sum_sodium="yes $trm_version_SODIUM: files can be encrypted and signed"
test "$trm_have_SODIUM" = yes || trm_sum_sodium="no: files can neither be encrypted nor signed (Debian: libsodium-dev)"
trm_sum_libcrypto="yes $trm_version_LIBCRYPTO: files are encrypted by AES-256-GCM"
test "$trm_have_LIBCRYPTO" = yes ||
  trm_sum_libcrypto="no: files are encrypted by ChaCha20-Poly1305, and those by AES are not read (Debian: libssl-dev)"
trm_sum_onnx="yes $trm_version_PROTOBUF_C: models can be exported as ONNX, TensorBoard event files"
test "$trm_have_onnx" = yes ||
  trm_sum_onnx="no: no export as ONNX, no TensorBoard event files (Debian: libprotobuf-c-dev protobuf-c-compiler)"
trm_sum_cunit="yes $trm_version_CUNIT: make check can run"
test "$trm_have_CUNIT" = yes || trm_sum_cunit="no: make check cannot run (Debian: libcunit1-dev)"
trm_sum_rsvg="yes $trm_version_RSVG: pictures of runs as PDF and PNG"
test "$trm_have_RSVG" = yes || trm_sum_rsvg="no: pictures of runs as SVG only (Debian: librsvg2-dev)"
trm_sum_cuda="yes $trm_cuda_version: module for compute capability$trm_cuda_archs"
test $trm_have_cuda = yes || trm_sum_cuda="no: no module for GPUs ($trm_cuda_missing)"
trm_sum_doxygen="yes $DOXYGEN: make docs makes pages of the documentation"
test "x$DOXYGEN" != x || trm_sum_doxygen="no: make docs makes no pages (Debian: doxygen)"
AS_IF([test "x$silent" != xyes], [AS_ECHO(["
$PACKAGE_NAME $PACKAGE_VERSION is set up.

  compiler       $CC $CFLAGS
  our flags      $TRM_CFLAGS
  prefix         $prefix
  MPI            $trm_mpi_version, from $trm_mpi_from$trm_sum_ucx
  mpiexec        ${MPIEXEC:-no: make check cannot run}
  HDF5           $trm_hdf5_version with parallel I/O, from $trm_hdf5_from
  BLAS           $trm_blas_version${trm_openblas_threads:+, $trm_openblas_threads threads}, from $trm_blas_from
  oneDNN         $trm_sum_onednn
  OpenMP         $trm_sum_openmp
  libyaml        $trm_sum_yaml
  zlib           $trm_sum_zlib
  libpng         $trm_sum_png
  libjpeg        $trm_sum_jpeg
  PCRE2          $trm_sum_pcre2
  libsodium      $trm_sum_sodium
  libcrypto      $trm_sum_libcrypto
  protobuf-c     $trm_sum_onnx
  CUDA           $trm_sum_cuda
  CUnit          $trm_sum_cunit
  librsvg        $trm_sum_rsvg
  doxygen        $trm_sum_doxygen
  native         $enable_native    werror  $enable_werror    sanitizer  $enable_sanitizer"])
AS_IF([test "x$trm_notes" != x], [AS_ECHO(["
  Please note:$trm_notes"])])
AS_ECHO(["
Next: make, make check, make install."])])
])
