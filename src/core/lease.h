/* The lease of a directory: one process at a time writes there. Not collective.
 *
 * The file `lease` in it names the process that has it. A thread renews it, by its time of modification. A lease has
 * ended when its file is removed, when its process is gone (seen on its machine), or when it was not renewed for
 * TRM_LEASE_S seconds (seen elsewhere, by the file system's clock). It needs hard links, which NFS, Lustre and local
 * file systems make for one process alone. */
#pragma once

enum { TRM_LEASE_S = 60 };

struct trm_lease;

/* Takes the lease of a directory that exists, which the caller returns. Where another process has it: waits until it
 * has ended, for wait_s seconds at most, and then fails with the host, process and job that has it. */
int trm_lease_take(const char *directory, double wait_s, struct trm_lease **lease);
/* Fails if another process has the lease since: this one was stopped for longer than the lease, and may not write. */
int trm_lease_check(const struct trm_lease *lease);
void trm_lease_return(struct trm_lease *lease); /* NULL is allowed */
