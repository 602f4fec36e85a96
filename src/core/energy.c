/* RAPL: a counter of microjoules for each package (its cores, and what else is on the chip) and for its memory, which
 * begins anew at max_energy_range_uj, after some minutes at full power (Linux' Documentation/power/powercap). */
#include "core/energy.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"

enum { READ_S = 20, MAX_ZONES = 64 };

struct zone {
  char *path;         /* of energy_uj, owned */
  double range, last; /* uJ */
};

struct trm_energy {
  struct zone zone[MAX_ZONES];
  int zones;
  double used; /* uJ */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool stop;
};

/* Returns the number in a file; NAN: none. */
static double energy_number(const char *path)
{
  double value = NAN;
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%lf", &value) != 1)
    value = NAN;
  if (file)
    fclose(file);
  return value;
}

/* Packages and memory. Other zones are parts of a package, or the whole machine with its packages. */
static bool energy_counts(const char *folder, const char *zone)
{
  char name[32] = "", *path = trm_format("%s/%s/name", folder, zone);
  FILE *file = strncmp(zone, "intel-rapl:", 11) == 0 ? fopen(path, "r") : NULL;
  if (file && !fgets(name, sizeof name, file))
    name[0] = '\0';
  if (file)
    fclose(file);
  trm_free(path);
  return strncmp(name, "package-", 8) == 0 || strncmp(name, "dram", 4) == 0;
}

static void energy_add_zone(struct trm_energy *energy, const char *folder, const char *name)
{
  struct zone *zone = &energy->zone[energy->zones];
  char *path = trm_format("%s/%s/max_energy_range_uj", folder, name);
  zone->range = energy_number(path);
  trm_free(path);
  zone->path = trm_format("%s/%s/energy_uj", folder, name);
  zone->last = energy_number(zone->path);
  energy->zones++;
}

/* Adds what each counter has counted since the last reading. Under lock. */
static void energy_add(struct trm_energy *energy)
{
  for (int i = 0; i < energy->zones; i++) {
    struct zone *zone = &energy->zone[i];
    const double now = energy_number(zone->path), used = now - zone->last;
    energy->used += used < 0 ? used + zone->range : used;
    zone->last = now;
  }
}

static void *energy_work(void *context)
{
  struct trm_energy *energy = context;
  pthread_mutex_lock(&energy->lock);
  while (!energy->stop) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += READ_S;
    pthread_cond_timedwait(&energy->changed, &energy->lock, &until);
    energy_add(energy);
  }
  pthread_mutex_unlock(&energy->lock);
  return NULL;
}

static void energy_free(struct trm_energy *energy)
{
  for (int i = 0; i < energy->zones; i++)
    trm_free(energy->zone[i].path);
  pthread_mutex_destroy(&energy->lock);
  pthread_cond_destroy(&energy->changed);
  trm_free(energy);
}

struct trm_energy *trm_energy_start(const char *folder)
{
  struct trm_energy *energy = trm_alloc(sizeof *energy, "counters of energy");
  sigset_t all, before;
  DIR *list = opendir(folder);
  pthread_mutex_init(&energy->lock, NULL);
  pthread_cond_init(&energy->changed, NULL);
  for (struct dirent *entry; list && energy->zones < MAX_ZONES && (entry = readdir(list));)
    if (energy_counts(folder, entry->d_name))
      energy_add_zone(energy, folder, entry->d_name);
  if (list)
    closedir(list);
  bool readable = energy->zones > 0;
  for (int i = 0; i < energy->zones; i++)
    readable = readable && !isnan(energy->zone[i].last) && energy->zone[i].range > 0;
  sigfillset(&all); /* signals are for the main thread */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = readable && pthread_create(&energy->thread, NULL, energy_work, energy) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started)
    return energy;
  energy_free(energy);
  return NULL;
}

double trm_energy_read(struct trm_energy *energy)
{
  pthread_mutex_lock(&energy->lock);
  energy_add(energy);
  const double joules = 1e-6 * energy->used;
  pthread_mutex_unlock(&energy->lock);
  return joules;
}

double trm_energy_stop(struct trm_energy *energy)
{
  if (!energy)
    return NAN;
  const double joules = trm_energy_read(energy);
  pthread_mutex_lock(&energy->lock);
  energy->stop = true;
  pthread_cond_signal(&energy->changed);
  pthread_mutex_unlock(&energy->lock);
  pthread_join(energy->thread, NULL);
  energy_free(energy);
  return joules;
}
