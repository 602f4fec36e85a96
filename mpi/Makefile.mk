# To add a file: its name, one a line, in this list (sources and headers alike).
libtrireme_la_SOURCES += \
	mpi/async/adpsgd.c \
	mpi/async/asgd.c \
	mpi/async/async.h \
	mpi/async/centre.c \
	mpi/async/centre.h \
	mpi/async/claims.c \
	mpi/async/claims.h \
	mpi/async/copies.c \
	mpi/async/copies.h \
	mpi/async/dcasgd.c \
	mpi/async/easgd.c \
	mpi/async/hogwild.c \
	mpi/async/keuper.c \
	mpi/async/peers.c \
	mpi/async/peers.h \
	mpi/async/service.c \
	mpi/async/service.h \
	mpi/async/service_private.h \
	mpi/async/service_remote.c \
	mpi/async/sgp.c \
	mpi/async/softsync.c \
	mpi/async/ssp.c \
	mpi/async/words.c \
	mpi/async/words.h \
	mpi/async/worker.c \
	mpi/async/worker.h \
	mpi/coll/allreduce_tree.c \
	mpi/coll/allreduce_tree.h \
	mpi/grid.c \
	mpi/grid.h \
	mpi/real.c \
	mpi/real.h \
	mpi/real_launch.c \
	mpi/real_node.c \
	mpi/real_private.h \
	mpi/real_window.c \
	mpi/strategies.c \
	mpi/strategies.h \
	mpi/sync/norms.c \
	mpi/sync/norms.h \
	mpi/sync/sync.c \
	mpi/sync/sync.h \
	mpi/sync/sync_arrays.c \
	mpi/sync/sync_private.h \
	mpi/sync/sync_staged.c \
	mpi/sync/zero.c \
	mpi/sync/zero_arrays.c \
	mpi/sync/zero_exchange.c \
	mpi/sync/zero_private.h \
	mpi/sync/zero_state.c

EXTRA_DIST += mpi/README.md
