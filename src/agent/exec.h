/* Processes, the parent's side: start, output, signals, end. */
#ifndef EXEC_H
#define EXEC_H

#include "channel.h"

/* An error code, or 0. On an error the channel holds nothing that has to be released. */
enum error_code exec_open(struct channel *channel, const uint8_t *fields, size_t length, int *error);
void exec_event(struct channel *channel, enum event event, uint32_t events);
void exec_signal(struct channel *channel, int signal, uint8_t scope);
void exec_resize(struct channel *channel, uint16_t rows, uint16_t columns);
/* False when the offset was never sent. */
bool exec_ack(struct channel *channel, uint8_t stream, uint64_t offset);
bool exec_resume(struct channel *channel, const uint64_t offsets[2]);
void exec_release(struct channel *channel);
void exec_reaped(struct channel *channel, int wait_status);
void exec_timer(struct channel *channel, uint64_t now);
uint64_t exec_wake(const struct channel *channel);
/* One frame at most per stream. True when there is more. */
bool exec_emit(struct channel *channel);
/* One of its streams has ended. */
void exec_stream_ended(struct channel *channel);
/* Whether SIGKILL is on its way to some of the tree. */
bool exec_is_killing(const struct exec *exec);
/* The tree got its signals. */
void exec_tree_done(struct channel *channel);

#endif
