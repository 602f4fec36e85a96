# To add a script: its name in trm_test_scripts. To add a test program: its name in
# trm_test_programs, and one line with its sources, such as
#   tests_unit_test_status_SOURCES = tests/unit/test_status.c $(trm_program_extra)
# Files that tests read go to EXTRA_DIST. How tests are run is at the end of Makefile.am.
trm_test_programs += \
	tests/unit/test_comm \
	tests/unit/test_core \
	tests/unit/test_sync
tests_unit_test_comm_SOURCES = tests/unit/test_comm.c tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_sync_SOURCES = tests/unit/test_sync.c tests/unit/ranks.h $(trm_program_extra)
tests_unit_test_core_SOURCES = tests/unit/test_core.c $(trm_program_extra)
trm_test_scripts += \
	tests/check_includes.sh \
	tests/bad_input.sh \
	tests/train.sh \
	tests/report.sh \
	tests/slurm.sh
EXTRA_DIST += $(trm_test_scripts) \
	tests/lib.sh \
	tests/run_matrix.sh \
	tests/unit/suite.h

# What starts a test program; it gets the program's path. Empty: the program itself.
trm_test_launcher = bash $(top_srcdir)/tests/run_matrix.sh
