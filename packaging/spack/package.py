"""Spack recipe, for a repository of one's own: packages/trireme/package.py. The source is the archive of `make dist`,
in the folder where spack is called."""
import os

from spack.package import *


class Trireme(AutotoolsPackage):
    """Distributed training of neural networks with MPI: data, pipeline and tensor parallelism, synchronous and
    asynchronous methods."""

    manual_download = True
    license("BSD-3-Clause")
    version("0.1.0")

    variant("onednn", default=True, description="products in bfloat16, faster convolutions")
    variant("encryption", default=True, description="encrypted and signed files")
    variant("protobuf", default=True, description="ONNX files, TensorBoard event files")
    variant("pcre2", default=True, description="texts as byte pairs")
    variant("images", default=True, description="import of PNG and JPEG images")
    variant("pdf", default=False, description="pictures of runs as PDF and PNG")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10: +mpi+hl")
    depends_on("blas")
    depends_on("openblas threads=openmp", when="^[virtuals=blas] openblas")
    depends_on("libyaml")
    depends_on("zlib-api")
    depends_on("onednn", when="+onednn")
    depends_on("libsodium", when="+encryption")
    depends_on("openssl", when="+encryption")
    depends_on("protobuf-c", when="+protobuf")
    depends_on("pcre2", when="+pcre2")
    depends_on("librsvg", when="+pdf")
    depends_on("libpng", when="+images")
    depends_on("jpeg", when="+images")
    depends_on("cunit", type="test")

    def url_for_version(self, version):
        return f"file://{os.getcwd()}/trireme-{version}.tar.gz"

    def configure_args(self):
        return ["--without-cuda", f"CC={self.spec['mpi'].mpicc}"]
