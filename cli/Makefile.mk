# To add a file: its name, one per line, in this list (sources and headers alike).
trireme_SOURCES += \
	cli/bench/bench.h \
	cli/bench/bench_allreduce.c \
	cli/bench/bench_gemm.c \
	cli/bench/bench_hogwild.c \
	cli/bench/bench_io.c \
	cli/bench/bench_rma.c \
	cli/bench/bench_rma_ops.c \
	cli/bench/bench_rma_ops.h \
	cli/bench/bench_param_server.c \
	cli/bench/bench_step.c \
	cli/bench/bench_run.c \
	cli/bench/bench_run.h \
	cli/bench/cmd_bench.c \
	cli/cmd_data.c \
	cli/cmd_eval.c \
	cli/cmd_export.c \
	cli/cmd_generate.c \
	cli/cmd_options.c \
	cli/cmd_plan.c \
	cli/cmd_predict.c \
	cli/cmd_report.c \
	cli/cmd_status.c \
	cli/status_ledger.c \
	cli/status_ledger.h \
	cli/cmd_train.c \
	cli/command.c \
	cli/command.h \
	cli/figures.c \
	cli/figures.h \
	cli/loaded.c \
	cli/loaded.h \
	cli/main.c \
	cli/planning.c \
	cli/planning.h \
	cli/markup.c \
	cli/markup.h \
	cli/report.h \
	cli/report_curves.c \
	cli/report_html.c \
	cli/report_picture.c \
	cli/report_read.c \
	cli/report_staleness.c \
	cli/report_trace.c \
	cli/svg.c \
	cli/svg.h

dist_man_MANS = cli/trireme.1
