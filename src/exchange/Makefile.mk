# To add a file: its name, one a line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	src/exchange/exchange.c \
	src/exchange/exchange.h \
	src/exchange/file.c \
	src/exchange/file.h \
	src/exchange/safetensors.c \
	src/exchange/safetensors.h \
	src/exchange/safetensors_file.c
