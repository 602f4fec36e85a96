/* Counters of energy in a folder as Linux' powercap has them. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/energy.h"
#include "core/memory.h"
#include "suite.h"

static char folder[] = "/tmp/trm_energy_XXXXXX";

static void energy_write(const char *zone, const char *name, const char *text)
{
  char *path = trm_format("%s/%s/%s", folder, zone, name);
  FILE *file = fopen(path, "w");
  CU_ASSERT_PTR_NOT_NULL_FATAL(file);
  fputs(text, file);
  fclose(file);
  trm_free(path);
}

static void energy_remove(const char *zone, const char *name)
{
  char *path = trm_format("%s/%s%s%s", folder, zone, *name ? "/" : "", name);
  CU_ASSERT(*name ? unlink(path) == 0 : rmdir(path) == 0);
  trm_free(path);
}

static void energy_make(const char *zone, const char *name, const char *microjoules)
{
  char *path = trm_format("%s/%s", folder, zone);
  CU_ASSERT_EQUAL_FATAL(mkdir(path, 0700), 0);
  trm_free(path);
  energy_write(zone, "name", name);
  energy_write(zone, "max_energy_range_uj", "262143328850\n");
  energy_write(zone, "energy_uj", microjoules);
}

static void test_energy(void)
{
  static const char *const zones[] = {"intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl:0:1"};
  CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
  CU_ASSERT_PTR_NULL(trm_energy_start("/nowhere"));
  CU_ASSERT_PTR_NULL(trm_energy_start(folder));
  CU_ASSERT(isnan(trm_energy_stop(NULL)));
  energy_make(zones[0], "package-0\n", "262143000000\n");
  energy_make(zones[1], "package-1\n", "5000000\n");
  energy_make(zones[2], "core\n", "0\n");
  energy_make(zones[3], "dram\n", "0\n");

  struct trm_energy *energy = trm_energy_start(folder);
  CU_ASSERT_PTR_NOT_NULL_FATAL(energy);
  CU_ASSERT_EQUAL(trm_energy_read(energy), 0);
  energy_write(zones[1], "energy_uj", "7500000\n");
  energy_write(zones[2], "energy_uj", "1000000\n"); /* a part of the package */
  CU_ASSERT_DOUBLE_EQUAL(trm_energy_read(energy), 2.5, 1e-9);
  energy_write(zones[0], "energy_uj", "671150\n"); /* 1 J later */
  CU_ASSERT_DOUBLE_EQUAL(trm_energy_read(energy), 3.5, 1e-9);
  energy_write(zones[3], "energy_uj", "500000\n");
  CU_ASSERT_DOUBLE_EQUAL(trm_energy_stop(energy), 4, 1e-9);

  energy = trm_energy_start(folder);
  energy_remove(zones[3], "energy_uj");
  CU_ASSERT(isnan(trm_energy_read(energy)));
  energy_write(zones[3], "energy_uj", "600000\n");
  CU_ASSERT(isnan(trm_energy_stop(energy))); /* what it has missed is not known */

  for (int i = 0; i < 4; i++) {
    energy_remove(zones[i], "name");
    energy_remove(zones[i], "max_energy_range_uj");
    energy_remove(zones[i], "energy_uj");
    energy_remove(zones[i], "");
  }
  CU_ASSERT_EQUAL(rmdir(folder), 0);
}

int main(void)
{
  CU_TestInfo tests[] = {{"counters", test_energy}, CU_TEST_INFO_NULL};
  return suite_run("energy", tests);
}
