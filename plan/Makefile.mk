# To add a file: its name, one per line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	plan/dry_run.c \
	plan/dry_run.h \
	plan/hybrid.c \
	plan/hybrid.h \
	plan/layout.h \
	plan/layout_memory.c \
	plan/layout_time.c \
	plan/machine.c \
	plan/machine.h \
	plan/machine_costs.c \
	plan/machine_measure.c \
	plan/machine_messages.c \
	plan/planner.c \
	plan/planner.h \
	plan/stage_cost.c \
	plan/stage_cost.h
