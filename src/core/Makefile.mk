# To add a file: its name, one a line, in one of these lists. Sources and private
# headers go to the first; headers that users of the library include to the second.
libtrireme_la_SOURCES +=
coreinclude_HEADERS += \
	src/core/comm.h \
	src/core/device.h \
	src/core/document.h \
	src/core/log.h \
	src/core/memory.h \
	src/core/options.h \
	src/core/random.h \
	src/core/sha256.h \
	src/core/status.h
