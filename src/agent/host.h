/* The connection to the host: accepting or standard streams, frames in, and the bounded queue of frames out. */
#ifndef HOST_H
#define HOST_H

#include "agent.h"

bool host_listen(int fd);
/* Takes both descriptors over. */
bool host_stdio(int in, int out);

void host_accept(void);
void host_readable(void);
/* Sends what channels have ready until the host takes no more. */
void host_send(void);
/* Gives buffers that were touched back to the system. */
void host_trim(void);

/* Room for payload bytes that out_frame would grant. */
size_t out_room(void);
/*
 * A frame in the queue; the caller fills the payload that is returned. Callers have checked out_room, or answer one
 * request: the queue always keeps room for that.
 */
uint8_t *out_frame(enum frame_type type, uint32_t channel, size_t length);
/* The same in two steps, for a payload whose length is known only after reading it. */
uint8_t *out_begin(enum frame_type type, uint32_t channel);
void out_commit(size_t length);
void out_retype(enum frame_type type);
void out_error(uint32_t channel, enum error_code code, int error, const char *message);

#endif
