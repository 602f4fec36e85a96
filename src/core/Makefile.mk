# To add a file: its name, one per line, in one of these lists. Sources and private
# headers go to the first; headers that users of the library include to the second.
libtrireme_la_SOURCES += \
	src/core/atomic_file.c \
	src/core/atomic_file.h \
	src/core/audit.c \
	src/core/audit.h \
	src/core/private_files.c \
	src/core/private_files.h \
	src/core/axis.c \
	src/core/axis_shared.c \
	src/core/axis_shared.h \
	src/core/axis_sharding.c \
	src/core/axis_sharding.h \
	src/core/parallel.c \
	src/core/pattern.c \
	src/core/pattern.h \
	src/core/parallel.h \
	src/core/background.c \
	src/core/background.h \
	src/core/bfloat16.c \
	src/core/energy.c \
	src/core/energy_gpu.c \
	src/core/energy.h \
	src/core/float16.c \
	src/core/chunk_cipher.c \
	src/core/chunk_cipher.h \
	src/core/cipher_file.c \
	src/core/cipher_file.h \
	src/core/cipher_header.c \
	src/core/cipher_header.h \
	src/core/clones.h \
	src/core/comm.c \
	src/core/comm_self.c \
	src/core/context.c \
	src/core/context.h \
	src/core/device_arrays.c \
	src/core/device_arrays.h \
	src/core/document.c \
	src/core/document.h \
	src/core/event_file.c \
	src/core/event_file.h \
	src/core/json.c \
	src/core/ledger.c \
	src/core/ledger.h \
	src/core/ledger_text.c \
	src/core/lease.c \
	src/core/lease.h \
	src/core/log.c \
	src/core/mapped.c \
	src/core/mapped.h \
	src/core/memory.c \
	src/core/options.c \
	src/core/options_private.h \
	src/core/options_show.c \
	src/core/options_table.c \
	src/core/printable.c \
	src/core/printable.h \
	src/core/random.c \
	src/core/random_permute_simd.h \
	src/core/random_permute.c \
	src/core/recordings.c \
	src/core/sanitizers.h \
	src/core/secret_key.c \
	src/core/secret_key.h \
	src/core/security.c \
	src/core/security.h \
	src/core/sha256.c \
	src/core/sha256.h \
	src/core/signature.c \
	src/core/signature.h \
	src/core/status.c \
	src/core/trace.c \
	src/core/trace.h
coreinclude_HEADERS += \
	src/core/api.h \
	src/core/axis.h \
	src/core/bfloat16.h \
	src/core/float16.h \
	src/core/choices.h \
	src/core/comm.h \
	src/core/counter.h \
	src/core/device.h \
	src/core/kernels.h \
	src/core/log.h \
	src/core/memory.h \
	src/core/options.h \
	src/core/random.h \
	src/core/recordings.h \
	src/core/status.h
pkginclude_HEADERS += src/trireme.h

# What protobuf-c makes of TensorBoard's messages.
EXTRA_DIST += src/core/event_file.proto
if TRM_ONNX
trm_event_made = src/core/event_file.pb-c.c src/core/event_file.pb-c.h
nodist_libtrireme_la_SOURCES += $(trm_event_made)
nodist_libtrireme_internal_la_SOURCES += $(trm_event_made)
CLEANFILES += $(trm_event_made)
src/core/event_file.pb-c.c: src/core/event_file.proto
	$(AM_V_GEN)$(MKDIR_P) src/core && \
	  $(PROTOC_C) --proto_path=$(srcdir)/src/core --c_out=src/core event_file.proto
src/core/event_file.pb-c.h: src/core/event_file.pb-c.c
src/core/event_file.lo: src/core/event_file.pb-c.h
endif
