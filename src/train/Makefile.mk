# To add a file: its name, one per line, in one of these lists. Sources and private
# headers go to the first; headers that users of the library include to the second.
libtrireme_la_SOURCES += \
	src/train/pipeline.h \
	src/train/charged_device.c \
	src/train/charged_device.h \
	src/train/checkpoint_files.c \
	src/train/checkpoint_files.h \
	src/train/compatibility.c \
	src/train/compatibility.h \
	src/train/pipeline_schedule.c \
	src/train/pipeline_schedule.h \
	src/train/buckets.c \
	src/train/buckets.h \
	src/train/buddy.c \
	src/train/buddy.h \
	src/train/budget.c \
	src/train/budget.h \
	src/train/dataset.c \
	src/train/epochs.c \
	src/train/evaluate.c \
	src/train/histograms.c \
	src/train/initial.c \
	src/train/device_batch.c \
	src/train/device_batch.h \
	src/train/lanes.c \
	src/train/local_state.c \
	src/train/local_state.h \
	src/train/shares.c \
	src/train/shares.h \
	src/train/slowdown.c \
	src/train/speeds.c \
	src/train/slowdown.h \
	src/train/measures.c \
	src/train/memory_files.c \
	src/train/memory_files.h \
	src/train/modes.c \
	src/train/places.c \
	src/train/rank_times.c \
	src/train/rows.c \
	src/train/run_dir.c \
	src/train/run_dir.h \
	src/train/run_record.c \
	src/train/restart.c \
	src/train/save.c \
	src/train/state_copy.c \
	src/train/state_copy.h \
	src/train/snapshots.c \
	src/train/staged_arrays.c \
	src/train/staged_arrays.h \
	src/train/staged_provider.c \
	src/train/staged_provider.h \
	src/train/staleness.c \
	src/train/stages.c \
	src/train/step.c \
	src/train/strategy.c \
	src/train/stop.c \
	src/train/stop.h \
	src/train/train.c \
	src/train/verify.c \
	src/train/gather.c \
	src/train/gather.h \
	src/train/trainer.h
traininclude_HEADERS += \
	src/train/checkpoint.h \
	src/train/costs.h \
	src/train/dataset.h \
	src/train/grid.h \
	src/train/measures.h \
	src/train/row_trainer.h \
	src/train/staleness.h \
	src/train/strategy.h \
	src/train/train.h

# The commit of the source, for record.json: looked up by each make, and written only if it is another one, so that no
# other file is compiled again. A source archive has it in the file revision; "unknown" in another copy without git.
# Where git fails, as for another user who installs, the file stays.
src/train/revision.h: trm-always
	@$(MKDIR_P) src/train; revision=; \
	test ! -e $(top_srcdir)/.git || revision=`cd $(top_srcdir) && git describe --always --dirty 2> /dev/null`; \
	test -n "$$revision" || test ! -e $(srcdir)/revision || revision=`cat $(srcdir)/revision`; \
	if test -n "$$revision" || test ! -e $@; then \
	  echo "#define TRM_REVISION \"$${revision:-unknown}\"" > $@.new; \
	  if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi; \
	fi
trm-always:
.PHONY: trm-always
trm_record_object = src/train/run_record.lo
$(trm_record_object): src/train/revision.h
CLEANFILES += src/train/revision.h
