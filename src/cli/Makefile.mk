# To add a file: its name, one a line, in this list (sources and headers alike).
trireme_SOURCES += \
	src/cli/bench.h \
	src/cli/bench_access.c \
	src/cli/bench_access.h \
	src/cli/bench_allreduce.c \
	src/cli/bench_gemm.c \
	src/cli/bench_hogwild.c \
	src/cli/bench_io.c \
	src/cli/bench_limits.c \
	src/cli/bench_limits.h \
	src/cli/bench_rma.c \
	src/cli/bench_service.c \
	src/cli/bench_step.c \
	src/cli/bench_work.c \
	src/cli/bench_work.h \
	src/cli/cmd_bench.c \
	src/cli/cmd_data.c \
	src/cli/cmd_eval.c \
	src/cli/cmd_export.c \
	src/cli/cmd_generate.c \
	src/cli/cmd_options.c \
	src/cli/cmd_plan.c \
	src/cli/cmd_predict.c \
	src/cli/cmd_report.c \
	src/cli/cmd_train.c \
	src/cli/commands.h \
	src/cli/flags.c \
	src/cli/flags.h \
	src/cli/job.c \
	src/cli/job.h \
	src/cli/loaded.c \
	src/cli/loaded.h \
	src/cli/main.c \
	src/cli/planning.c \
	src/cli/planning.h \
	src/cli/report.h \
	src/cli/report_gnuplot.c \
	src/cli/report_html.c \
	src/cli/report_read.c \
	src/cli/report_staleness.c \
	src/cli/report_trace.c \
	src/cli/svg.c \
	src/cli/svg.h \
	src/cli/timed_device.c \
	src/cli/timed_device.h

dist_man_MANS = src/cli/trireme.1
