# To add a script: its name in trm_test_scripts. To add a test program: its name in
# trm_test_programs, and one line with its sources, such as
#   tests_unit_test_status_SOURCES = tests/unit/test_status.c $(trm_program_extra)
# Files that tests read go to EXTRA_DIST. "make check" runs the tests one after the other
# (a test is itself a job of several ranks, so -j only makes them fight for cores);
# a single one: make check TESTS=tests/unit/test_status.
trm_test_programs +=
trm_test_scripts +=
EXTRA_DIST += $(trm_test_scripts) \
	tests/unit/suite.h

# A test that hangs is ended, so that the log says which one.
TRM_TEST_TIMEOUT = 300
trm_watchdog = timeout -k 10 $(TRM_TEST_TIMEOUT)

TEST_EXTENSIONS = .sh
SH_LOG_COMPILER = $(trm_watchdog) bash
# How a test program is started.
LOG_COMPILER = $(trm_watchdog)

# The OMPI_ and PRTE_ settings let Open MPI start more ranks than there are cores, and
# start as root in a container; other MPIs do not read them.
AM_TESTS_ENVIRONMENT = \
	MPIEXEC='$(MPIEXEC)'; export MPIEXEC; \
	GNUPLOT='$(GNUPLOT)'; export GNUPLOT; \
	TRIREME='$(abs_top_builddir)/trireme$(EXEEXT)'; export TRIREME; \
	srcdir='$(abs_srcdir)'; export srcdir; \
	top_srcdir='$(abs_top_srcdir)'; export top_srcdir; \
	builddir='$(abs_builddir)'; export builddir; \
	top_builddir='$(abs_top_builddir)'; export top_builddir; \
	OMPI_MCA_rmaps_base_oversubscribe=1; export OMPI_MCA_rmaps_base_oversubscribe; \
	OMPI_ALLOW_RUN_AS_ROOT=1; export OMPI_ALLOW_RUN_AS_ROOT; \
	OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM; \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe; \
	export PRTE_MCA_rmaps_default_mapping_policy;

if TRM_CUNIT
check_PROGRAMS = $(trm_test_programs)
TESTS = $(trm_test_programs) $(trm_test_scripts)
else
check_PROGRAMS =
TESTS =
check-local:
	@echo "make check needs CUnit: install it (Debian: libcunit1-dev) and run configure again" >&2; exit 1
endif
