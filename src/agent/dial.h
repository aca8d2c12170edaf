/* TCP connections made inside the sandbox's network. */
#ifndef DIAL_H
#define DIAL_H

#include "channel.h"

enum error_code dial_open(struct channel *channel, const uint8_t *fields, size_t length, int *error);
void dial_event(struct channel *channel, enum event event);
bool dial_emit(struct channel *channel);
/* Closes it: with a reset unless the host has ended its direction, so that what was broken off is not taken for whole. */
void dial_release(struct channel *channel);

#endif
