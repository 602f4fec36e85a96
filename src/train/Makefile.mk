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
	src/train/auc.c \
	src/train/auc.h \
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
	src/train/setup.c \
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

# The commit and the version of the source: looked up by each make, and written only if they are others, so that nothing
# else is compiled again. Where git fails, as for another user who installs, the file stays.
src/train/revision.h: trm-always
	@$(MKDIR_P) src/train; new=$@.$$$$; sh $(srcdir)/src/train/revision.sh $(srcdir) $(PACKAGE_VERSION) > $$new; \
	test -s $$new || test -e $@ || \
	  printf '#define TRM_REVISION "unknown"\n#define TRM_BUILD_VERSION "$(PACKAGE_VERSION)"\n' > $$new; \
	if test ! -s $$new || cmp -s $$new $@; then rm $$new; else mv $$new $@; fi
trm-always:
.PHONY: trm-always
trm_revision_objects = src/train/run_record.lo cli/main.$(OBJEXT)
$(trm_revision_objects): src/train/revision.h
EXTRA_DIST += src/train/revision.sh
CLEANFILES += src/train/revision.h
