/* What an exec's process writes: from its pipes or terminal into the rings, as far as the host has given credit. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "channel.h"

void output_read(struct channel *channel, int stream);
/* The stream has ended. */
void output_end(struct channel *channel, int stream);
/* Everything that counts has been read and acknowledged. */
bool output_drained(const struct exec *exec, int stream);

#endif
