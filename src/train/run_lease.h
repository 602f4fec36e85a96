/* The lease of a run directory: one job at a time writes there. Called by rank 0 alone; not collective.
 *
 * The file RUN/lease names the process that has it. A thread renews it, by its time of modification. A lease has ended
 * when its file is removed, when its process is gone (seen on its machine), or when it was not renewed for
 * TRM_LEASE_S seconds (seen elsewhere, by the file system's clock). It needs hard links, which are made for one
 * process alone on NFS, Lustre and local file systems. */
#pragma once

enum { TRM_LEASE_S = 60 };

struct trm_run_lease;

/* Takes the lease of a directory that exists, which the caller returns. Where another process has it: waits until it
 * has ended, for wait_s seconds at most and unless a signal to stop arrives, and then fails with the host, process and
 * job that has it. */
int trm_run_lease_take(const char *directory, double wait_s, struct trm_run_lease **lease);
/* Fails if another process has the lease since: this one was stopped for longer than the lease, and may not write. */
int trm_run_lease_check(const struct trm_run_lease *lease);
void trm_run_lease_return(struct trm_run_lease *lease); /* NULL is allowed */
