/* A device whose operations on flat arrays take modeled time: each calls that of another device, and passes the time
 * (slot compute of core/comm.h). Strategies of a virtual network compute with it; passes do not, whose time is that of
 * a gradient. */
#pragma once

#include "core/comm.h"
#include "core/device.h"
#include "train/costs.h"

struct trm_charged_device {
  struct trm_device device;
  struct trm_device_ops ops;          /* of device */
  const struct trm_device_ops *inner; /* the other device's */
  struct trm_array_costs costs; /* 0 after open */
  struct trm_comm *comm;        /* not owned */
};

/* Makes charged->device from an open device, which has to outlive it. Nothing to close. */
void trm_charged_device_open(struct trm_charged_device *charged, const struct trm_device *inner,
                             struct trm_comm *comm);
