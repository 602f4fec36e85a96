# To add a file: its name, one per line, in this list (sources and headers alike).
trm_cli = \
	cli/bench/bench.h \
	cli/bench/bench_allreduce.c \
	cli/bench/bench_allreduce_tune.c \
	cli/bench/bench_collective.c \
	cli/bench/bench_collective.h \
	cli/bench/bench_shared.c \
	cli/bench/bench_shared.h \
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
	cli/cmd_doctor.c \
	cli/doctor.h \
	cli/doctor_find.c \
	cli/doctor_folder.c \
	cli/doctor_judge.c \
	cli/doctor_report.c \
	cli/data_sheet.c \
	cli/data_sheet.h \
	cli/cmd_eval.c \
	cli/cmd_export.c \
	cli/cmd_generate.c \
	cli/cmd_key.c \
	cli/cmd_options.c \
	cli/cmd_plan.c \
	cli/cmd_predict.c \
	cli/predict_tokens.c \
	cli/predict_tokens.h \
	cli/cmd_repeat.c \
	cli/cmd_report.c \
	cli/repeat.h \
	cli/repeat_compare.c \
	cli/repeat_record.c \
	cli/cmd_run.c \
	cli/run_child.c \
	cli/run_child.h \
	cli/run_hosts.c \
	cli/run_hosts.h \
	cli/run_segments.c \
	cli/run_segments.h \
	cli/run_state.c \
	cli/run_state.h \
	cli/run_words.c \
	cli/run_words.h \
	cli/cmd_sbatch.c \
	cli/sbatch.h \
	cli/sbatch_launcher.c \
	cli/sbatch_script.c \
	cli/script.c \
	cli/script.h \
	cli/cmd_status.c \
	cli/status_ledger.c \
	cli/status_ledger.h \
	cli/cmd_train.c \
	cli/command.c \
	cli/command.h \
	cli/commands.c \
	cli/completion.c \
	cli/completion.h \
	cli/figures.c \
	cli/figures.h \
	cli/loaded.c \
	cli/loaded.h \
	cli/planning.c \
	cli/planning.h \
	cli/markup.c \
	cli/markup.h \
	cli/outcome.c \
	cli/outcome.h \
	cli/report.h \
	cli/report_curves.c \
	cli/report_group.c \
	cli/report_html.c \
	cli/report_lines.c \
	cli/report_mlflow.c \
	cli/report_panel.c \
	cli/report_render.c \
	cli/report_scaling.c \
	cli/report_table.c \
	cli/report_target.c \
	cli/report_picture.c \
	cli/report_read.c \
	cli/report_staleness.c \
	cli/report_tensorboard.c \
	cli/report_trace.c \
	cli/cmd_sweep.c \
	cli/sweep.h \
	cli/sweep_axes.c \
	cli/sweep_picture.c \
	cli/sweep_runs.c \
	cli/sweep_select.c \
	cli/sweep_slurm.c \
	cli/sweep_statistics.c \
	cli/sweep_table.c \
	cli/sweep_variants.c \
	cli/svg.c \
	cli/svg.h \
	cli/svg_grid.c \
	cli/svg_lines.c \
	cli/svg_private.h \
	cli/svg_rows.c

# The commands, without main: the fuzzers call some of them.
trireme_SOURCES += cli/main.c $(trm_cli)

dist_man_MANS = cli/trireme.1

# Completion of the command line, written by the program.
bashcompletiondir = $(datadir)/bash-completion/completions
zshcompletiondir = $(datadir)/zsh/site-functions
fishcompletiondir = $(datadir)/fish/vendor_completions.d
nodist_bashcompletion_DATA = cli/completion/trireme
nodist_zshcompletion_DATA = cli/completion/_trireme
nodist_fishcompletion_DATA = cli/completion/trireme.fish
trm_completions = $(nodist_bashcompletion_DATA) $(nodist_zshcompletion_DATA) $(nodist_fishcompletion_DATA)
CLEANFILES += $(trm_completions)
$(trm_completions): trireme$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) cli/completion && case $@ in *.fish) s=fish ;; *_trireme) s=zsh ;; *) s=bash ;; esac && \
	  ./trireme$(EXEEXT) options --completion=$$s > $@.new && mv $@.new $@
