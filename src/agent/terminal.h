#ifndef TERMINAL_H
#define TERMINAL_H

#include "agent.h"

/* A new terminal of the sandbox; errno on failure. */
bool terminal_open(uint16_t rows, uint16_t columns, int *master, int *slave);
void terminal_resize(int master, uint16_t rows, uint16_t columns);

#endif
