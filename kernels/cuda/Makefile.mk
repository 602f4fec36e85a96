# The module for GPUs: trireme_cuda.so in $(pkglibdir), one exported name, loaded at run time. To add a kernel file: its
# name in trm_cuda_kernels, and in tests/cuda/emulated.cpp.
trm_cuda_kernels = \
	kernels/cuda/activation.cu \
	kernels/cuda/attention.cu \
	kernels/cuda/attention_backward.cu \
	kernels/cuda/attention_tensor.cu \
	kernels/cuda/batch_norm.cu \
	kernels/cuda/bias.cu \
	kernels/cuda/conv.cu \
	kernels/cuda/csr.cu \
	kernels/cuda/dropout.cu \
	kernels/cuda/embedding.cu \
	kernels/cuda/flat.cu \
	kernels/cuda/loss.cu \
	kernels/cuda/loss_join.cu \
	kernels/cuda/norm.cu \
	kernels/cuda/numbers.cu \
	kernels/cuda/pool.cu \
	kernels/cuda/rotary.cu \
	kernels/cuda/update.cu
trm_cuda_headers = \
	kernels/cuda/attention.cuh \
	kernels/cuda/attention_tensor.cuh \
	kernels/cuda/columns.cuh \
	kernels/cuda/conv.cuh \
	kernels/cuda/conv_tile.cuh \
	kernels/cuda/cuda.h \
	kernels/cuda/dropout.cuh \
	kernels/cuda/gemm.h \
	kernels/cuda/kernel.cuh \
	kernels/cuda/tensor_core.cuh
trm_cuda_host = \
	kernels/composed_kernels.c \
	kernels/cuda/copies.c \
	kernels/cuda/cuda.c \
	kernels/cuda/gemm.c \
	kernels/cuda/linear.c \
	kernels/cuda/memory.c \
	kernels/cuda/recording.c
trm_module_flags = -module -avoid-version -shared -export-symbols-regex '^trm_module$$'
EXTRA_DIST += $(trm_cuda_kernels) $(trm_cuda_headers) $(trm_cuda_host) kernels/cuda/nvcc-libtool.sh

if TRM_CUDA
pkglib_LTLIBRARIES += kernels/cuda/trireme_cuda.la
kernels_cuda_trireme_cuda_la_SOURCES = $(trm_cuda_host)
kernels_cuda_trireme_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
kernels_cuda_trireme_cuda_la_LDFLAGS = $(AM_LDFLAGS) $(trm_module_flags)
kernels_cuda_trireme_cuda_la_LIBADD = $(trm_cuda_kernels:.cu=.lo) $(CUDA_LIBS) -lstdc++
EXTRA_kernels_cuda_trireme_cuda_la_DEPENDENCIES = $(trm_cuda_kernels:.cu=.lo)

# Products and sums are rounded each, as everywhere (fmaf where one is meant), so that fused kernels have the bits of
# composed ones. ptxas fails on spilled registers, and on double precision, which is slow on many processors, except for the few
# numbers of a step and of a row.
trm_nvcc_flags = -std=c++17 -O3 -fmad=false -Xptxas=-Werror,-warn-spills$(trm_nvcc_doubles)
trm_nvcc_doubles = ,-warn-double-usage
kernels/cuda/loss_join.lo kernels/cuda/numbers.lo: trm_nvcc_doubles =
SUFFIXES = .cu
.cu.lo:
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && $(LIBTOOL) $(AM_V_lt) --tag=CC --mode=compile \
	  $(SHELL) $(top_srcdir)/kernels/cuda/nvcc-libtool.sh $(NVCC) -ccbin $(CUDA_CXX) $(trm_nvcc_flags) \
	  $(CUDA_GENCODE) -I$(top_srcdir)/src -I$(top_srcdir) $(CUDA_CPPFLAGS) $(NVCCFLAGS) -fvisibility=hidden \
	  -c -o $@ $<
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
$(trm_cuda_kernels:.cu=.lo): $(trm_cuda_headers) kernels/cuda/Makefile.mk src/core/device.h src/core/kernels.h src/core/bfloat16.h src/core/random.h
endif
