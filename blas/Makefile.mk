# To add a file: its name, one per line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	blas/amx.c \
	blas/amx.h \
	blas/amx_tile.h \
	blas/bf16_tile.h \
	blas/blas.c \
	blas/blas.h \
	blas/openblas.c \
	blas/product.c \
	blas/product.h
if TRM_ONEDNN
libtrireme_la_SOURCES += \
	blas/by_size.c \
	blas/onednn.c \
	blas/onednn_versions.h
endif
EXTRA_DIST += blas/README.md
