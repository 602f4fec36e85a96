/* Runs tests of a training method on the CPU and on a device with separate memory. A program includes this once. */
#pragma once

#include "method.h"
#include "support/pretend_device.h"

static struct trm_device pretend;

static inline int method_devices_run(int argc, char **argv, const char *name, CU_TestInfo *tests)
{
  if (pretend_device_open(&pretend, 1) != TRM_OK) {
    trm_log_error();
    return 99;
  }
  const int status = method_run(argc, argv, name, tests);
  pretend_device_close(&pretend);
  return status;
}
