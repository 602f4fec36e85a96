# To add a file: its name, one a line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	datasets/augment.c \
	datasets/blocks.c \
	datasets/blocks.h \
	datasets/checkpoint.c \
	datasets/datasets.h \
	datasets/digits.c \
	datasets/digits.h \
	datasets/digits_draw.c \
	datasets/digits_forms.c \
	datasets/format.h \
	datasets/gather.c \
	datasets/h5.c \
	datasets/h5.h \
	datasets/import.c \
	datasets/import.h \
	datasets/import_cifar10.c \
	datasets/import_csv.c \
	datasets/import_libsvm.c \
	datasets/import_mnist.c \
	datasets/import_text.c \
	datasets/info.c \
	datasets/input.c \
	datasets/input.h \
	datasets/load.c \
	datasets/loader.c \
	datasets/loader.h \
	datasets/order.c \
	datasets/order.h \
	datasets/predictions.c \
	datasets/rate.c \
	datasets/reader.c \
	datasets/reader.h \
	datasets/windows.c \
	datasets/writer.c
EXTRA_DIST += datasets/README.md
