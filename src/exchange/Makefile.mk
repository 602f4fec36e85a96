# To add a file: its name, one per line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	src/exchange/exchange.c \
	src/exchange/exchange.h \
	src/exchange/onnx.c \
	src/exchange/onnx.h \
	src/exchange/onnx_graph.c \
	src/exchange/safetensors.c \
	src/exchange/safetensors.h \
	src/exchange/safetensors_file.c
EXTRA_DIST += src/exchange/onnx.proto

# What protobuf-c makes of the messages.
if TRM_ONNX
trm_onnx_made = src/exchange/onnx.pb-c.c src/exchange/onnx.pb-c.h
nodist_libtrireme_la_SOURCES += $(trm_onnx_made)
nodist_libtrireme_internal_la_SOURCES += $(trm_onnx_made)
CLEANFILES += $(trm_onnx_made)
src/exchange/onnx.pb-c.c: src/exchange/onnx.proto
	$(AM_V_GEN)$(MKDIR_P) src/exchange && \
	  $(PROTOC_C) --proto_path=$(srcdir)/src/exchange --c_out=src/exchange onnx.proto
src/exchange/onnx.pb-c.h: src/exchange/onnx.pb-c.c
src/exchange/onnx.lo src/exchange/onnx_graph.lo src/exchange/exchange.lo: src/exchange/onnx.pb-c.h
endif
