# To add a file: its name, one a line, in one of these lists. Sources and private
# headers go to the first; headers that users of the library include to the second.
libtrireme_la_SOURCES +=
nninclude_HEADERS += \
	src/nn/input.h \
	src/nn/layer.h \
	src/nn/loss.h \
	src/nn/model.h \
	src/nn/optimizer.h
