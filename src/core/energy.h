/* The energy that a host has used: its processors and memory since a start, by the counters of Linux' powercap (RAPL),
 * and its GPUs. Joules. */
#pragma once

struct trm_energy;

#define TRM_ENERGY_FOLDER "/sys/class/powercap"

/* Begins to count, with a thread that reads the counters before they wrap around. folder: that of the counters. Returns
 * NULL where there are none that this user may read. Owned by the caller: trm_energy_stop. Not collective. */
struct trm_energy *trm_energy_start(const char *folder);
/* Reads the counters. Returns J since the start; NAN: a counter could not be read. */
double trm_energy_read(struct trm_energy *energy);
/* Returns the same, and releases it. NAN for NULL. */
double trm_energy_stop(struct trm_energy *energy);

/* Returns J that all of this host's NVIDIA GPUs have used since their driver was loaded. 0: the host has no library of
 * the driver; NAN: a GPU does not count. May take a second. Not collective. */
double trm_energy_of_gpus(void);
