#ifndef EXEC_REQUEST_H
#define EXEC_REQUEST_H

#include "agent.h"

enum { EXEC_TERMINAL = 1, EXEC_STDIN = 2 };

/* What the agent itself needs of an EXEC; the rest is the child's. */
struct exec_request {
	uint32_t flags, window;
	uint64_t timeout; /* ms, 0 for none */
	uint16_t rows, columns;
};

/* False when any field is not as it should be; the child need not look again. */
bool exec_request_parse(const uint8_t *fields, size_t length, struct exec_request *request);

#endif
