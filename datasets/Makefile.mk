# To add a file: its name, one a line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	datasets/blocks.c \
	datasets/blocks.h \
	datasets/datasets.h \
	datasets/format.h \
	datasets/h5.c \
	datasets/h5.h \
	datasets/predictions.c \
	datasets/writer.c
