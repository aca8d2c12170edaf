/* What runs between fork and execve. */
#ifndef CHILD_H
#define CHILD_H

#include "agent.h"

struct child_fds {
	int in, out, error; /* the terminal is all three */
	int status;         /* code u32, errno u32; closed unsaid by a successful execve */
	bool terminal;
};

/* Remembers what children get back: limits, the mask. */
void child_init(void);
/* The process id, or -1 with errno. */
pid_t child_start(const struct child_fds *fds, const uint8_t *fields, size_t length);

#endif
