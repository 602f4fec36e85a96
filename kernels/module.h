/* The contract between the program and a device that it loads at run time (kernels/cuda). Neither links the other: the
 * program finds one symbol of the module, and the module calls the program through a table. */
#pragma once

#include "core/device.h"

/* Increased with every change of a slot's meaning that leaves the sizes below as they were. */
#define TRM_MODULE_VERSION 1
#define TRM_MODULE_ENTRY "trm_module"

/* A number that changes with the layout of the contract: of the table of slots, and of the arguments of each kernel. */
#define TRM_MODULE_SIZE(slot, type) +(sizeof(struct type) * 31)
#define TRM_MODULE_LAYOUT (sizeof(struct trm_device_ops) + sizeof(struct trm_device) TRM_KERNELS(TRM_MODULE_SIZE) \
                           TRM_FUSED_KERNELS(TRM_MODULE_SIZE))

/* Functions of the program. */
struct trm_module_host {
  int (*error)(int status, const char *format, ...) __attribute__((format(printf, 2, 3))); /* trm_error */
  const char *(*memory_name)(enum trm_memory_use use);
};

struct trm_module {
  unsigned version;
  size_t layout;
  const struct trm_device_ops *ops;
  int (*processors)(int *count); /* counts the processors of this node; an error says why there are none */
};

/* Returns the module. host is the program's, for as long as it runs. */
typedef const struct trm_module *trm_module_entry(const struct trm_module_host *host);

/* Finds trireme_NAME.so in the folder $TRIREME_MODULES, or where this build is installed, and loads it. Errors say what
 * is missing. */
int trm_module_find(const char *name, const struct trm_module **module);
