# To add a file: its name, one a line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	datasets/blocks.c \
	datasets/blocks.h \
	datasets/datasets.h \
	datasets/digits.c \
	datasets/digits.h \
	datasets/digits_draw.c \
	datasets/digits_forms.c \
	datasets/format.h \
	datasets/h5.c \
	datasets/h5.h \
	datasets/import.c \
	datasets/import.h \
	datasets/import_cifar10.c \
	datasets/import_csv.c \
	datasets/import_libsvm.c \
	datasets/import_mnist.c \
	datasets/import_text.c \
	datasets/input.c \
	datasets/input.h \
	datasets/predictions.c \
	datasets/writer.c
