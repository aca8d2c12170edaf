/* The end of an exec's process: told by the kernel, unless a tracer inside the sandbox keeps it from the agent. */
#ifndef ENDING_H
#define ENDING_H

#include "channel.h"

void ending_watch(struct channel *channel);
/* The process has ended. May free the channel. */
void ending_event(struct channel *channel);
/* The whole tree is being killed. */
void ending_killed(struct channel *channel);
/* May free the channel. */
void ending_timer(struct channel *channel, uint64_t now);

#endif
