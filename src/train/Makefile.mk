# To add a file: its name, one a line, in one of these lists. Sources and private
# headers go to the first; headers that users of the library include to the second.
libtrireme_la_SOURCES +=
traininclude_HEADERS += \
	src/train/checkpoint.h \
	src/train/dataset.h \
	src/train/strategy.h \
	src/train/train.h
