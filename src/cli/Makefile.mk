# To add a file: its name, one a line, in this list (sources and headers alike).
trireme_SOURCES +=
