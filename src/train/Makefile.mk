# To add a file: its name, one a line, in one of these lists. Sources and private
# headers go to the first; headers that users of the library include to the second.
libtrireme_la_SOURCES += \
	src/train/actions.c \
	src/train/budget.c \
	src/train/budget.h \
	src/train/checkpoint.c \
	src/train/dataset.c \
	src/train/epochs.c \
	src/train/evaluate.c \
	src/train/feed.c \
	src/train/feed.h \
	src/train/kept.c \
	src/train/kept.h \
	src/train/lanes.c \
	src/train/lanes.h \
	src/train/pace.c \
	src/train/pace.h \
	src/train/rows.c \
	src/train/rundir.c \
	src/train/rundir.h \
	src/train/save.c \
	src/train/staleness.c \
	src/train/stages.c \
	src/train/stages.h \
	src/train/step.c \
	src/train/stop.c \
	src/train/stop.h \
	src/train/train.c \
	src/train/whole.c \
	src/train/whole.h \
	src/train/trainer.h
traininclude_HEADERS += \
	src/train/actions.h \
	src/train/checkpoint.h \
	src/train/dataset.h \
	src/train/grid.h \
	src/train/pipeline.h \
	src/train/staleness.h \
	src/train/strategy.h \
	src/train/train.h
