/* Signals to every process of an exec's session and to their descendants. */
#ifndef TREE_H
#define TREE_H

#include "channel.h"

/* Something was put in an exec's tree_signals or begun_signals. */
void tree_request(void);
/* What the exec's process begins from now on is what begun_signals are for. */
void tree_mark(struct channel *channel);
void tree_run(void);
uint64_t tree_wake(void);

/* A directory of /proc, kept open from the start. */
bool proc_init(void);
int proc_open(const char *path, int flags);
/* Gives it another number, for a child that closes the rest. */
bool proc_move(int fd);
/* The agent may be the last to be killed when memory runs out; what it starts may not. */
void oom_reset(void);

#endif
