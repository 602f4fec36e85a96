# To add a file: its name, one per line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	kernels/cpu/activation.c \
	kernels/cpu/attention.c \
	kernels/cpu/attention.h \
	kernels/cpu/attention_bf16.c \
	kernels/cpu/attention_bf16.h \
	kernels/cpu/attention_bf16_backward.c \
	kernels/cpu/attention_avx2.c \
	kernels/cpu/attention_avx512.c \
	kernels/cpu/attention_blocks.c \
	kernels/cpu/attention_kernel.h \
	kernels/cpu/attention_products.c \
	kernels/cpu/batch_norm.c \
	kernels/cpu/batch_norm.h \
	kernels/cpu/batch_norm_rows.c \
	kernels/cpu/conv.c \
	kernels/cpu/conv.h \
	kernels/cpu/conv_amx.c \
	kernels/cpu/conv_amx.h \
	kernels/cpu/conv_amx_weights.c \
	kernels/cpu/conv_avx2.c \
	kernels/cpu/conv_avx512.c \
	kernels/cpu/conv_kernel.h \
	kernels/cpu/conv_onednn.h \
	kernels/cpu/conv_plain.c \
	kernels/cpu/conv_planes.c \
	kernels/cpu/conv_stage.c \
	kernels/cpu/conv_stage.h \
	kernels/cpu/cpu.c \
	kernels/cpu/cpu.h \
	kernels/cpu/csr.c \
	kernels/cpu/dropout.c \
	kernels/cpu/embedding.c \
	kernels/cpu/flat.c \
	kernels/cpu/gate.c \
	kernels/cpu/loss.c \
	kernels/cpu/math.h \
	kernels/cpu/pool.c \
	kernels/cpu/pool.h \
	kernels/cpu/pool_last.c \
	kernels/cpu/norm.c \
	kernels/cpu/rotary.c \
	kernels/cpu/bias.c \
	kernels/cpu/sparse_sgd.c \
	kernels/cpu/update.c \
	kernels/cpu/values.c \
	kernels/cpu/vector_avx2.h \
	kernels/cpu/vector_avx512.h \
	kernels/cpu/vector_product.c \
	kernels/composed_kernels.c \
	kernels/composed_kernels.h \
	kernels/devices.c \
	kernels/host_kernels.c \
	kernels/host_kernels.h \
	kernels/kernels.h \
	kernels/module.c \
	kernels/module.h \
	kernels/timed_device.c \
	kernels/timed_device.h
if TRM_ONEDNN
libtrireme_la_SOURCES += \
	kernels/cpu/conv_onednn.c \
	kernels/cpu/conv_onednn_many.c \
	kernels/cpu/conv_onednn_plan.c \
	kernels/cpu/conv_transpose.c
endif
EXTRA_DIST += kernels/README.md
