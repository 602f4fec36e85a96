/* Calls that a thread makes while the caller goes on, one after the other. Not collective. The functions may not use
 * the communicator. */
#pragma once

#include <stdbool.h>

struct trm_background;

/* Never returns NULL. Without a thread to be had, begin makes its calls at once. */
struct trm_background *trm_background_open(void);
/* Has function(context) called, after the calls that began before it. A call that follows a failed one is not made.
 * context: the caller's; it must be valid, and what the call reads unchanged, until wait returns. */
void trm_background_begin(struct trm_background *background, int (*function)(void *context), void *context);
/* For such functions, in place of a communicator's wait_until: returns when done(context) is true, and sleeps between
 * its calls. */
void trm_background_poll(bool (*done)(const void *context), const void *context);
bool trm_background_failed(struct trm_background *background); /* a call has, since the last wait; does not wait */
bool trm_background_is_idle(struct trm_background *background); /* all calls have returned; does not wait */
/* Returns when all calls have returned, with the status and the message of the one that failed. */
int trm_background_wait(struct trm_background *background);
void trm_background_close(struct trm_background *background); /* waits; NULL is allowed */
