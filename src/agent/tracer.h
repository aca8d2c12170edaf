/* Who traces a process that has ended keeps it from its parent until it waits for it or ends. */
#ifndef TRACER_H
#define TRACER_H

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor that is readable when the process has ended, whoever traces it; -1 where there is none. */
int process_watch(pid_t pid);
/* Whether all its threads have ended; false when it cannot be seen. It must not have been reaped. */
bool process_ended(pid_t pid);
/* Kills who traces any of its threads. */
void tracers_kill(pid_t pid);

#endif
