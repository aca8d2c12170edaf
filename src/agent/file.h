/* File operations, the parent's side: each runs in a forked child, so that no file system can hold the agent up. */
#ifndef FILE_H
#define FILE_H

#include "channel.h"

enum error_code file_open(struct channel *channel, const uint8_t *fields, size_t length, int *error);
void file_event(struct channel *channel, enum event event);
bool file_emit(struct channel *channel);
/* Of operations that have a content: some of it; and its end, perhaps with what it is checked by. False: the host broke the protocol. */
bool file_content(struct channel *channel, const uint8_t *bytes, size_t length);
bool file_end(struct channel *channel, const uint8_t *check, size_t length);
void file_release(struct channel *channel);

#endif
