# To add a file: its name, one per line, in one of these lists (public headers in the second).
libtrireme_la_SOURCES += \
  job/cores.c \
  job/job.c \
  job/ledger_files.c \
  job/ledger_files.h \
  job/stall.c \
  job/stall.h \
  job/watchdog.c \
  job/watchdog.h
jobinclude_HEADERS += \
  job/cores.h \
  job/job.h
