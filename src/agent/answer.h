/* What the child of a file operation says to the agent: frames without header, type, then payload. */
#ifndef ANSWER_H
#define ANSWER_H

#include <sys/stat.h>

#include "agent.h"

enum { TALK = 1, ENTRY_MAX = 65536, SKIPS_TOLD = 100 };

/* What has to go when the operation does not succeed. */
void answer_on_failure(void (*discard)(void));
/* `message[0]` is the type. Ends the operation when nobody listens any more. */
void answer(const uint8_t *message, size_t length);
/* Nobody wants to know. */
_Noreturn void answer_end(void);
_Noreturn void answer_refuse(enum error_code code, int error);
/* The same, about one entry of an archive or a tree. */
_Noreturn void answer_refuse_entry(enum error_code code, int error, const char *entry);
/* Refuses what is below 0, with errno. */
int answer_check(int result);
int answer_check_entry(int result, const char *entry);
/* An entry was left out; only the first ones are told, all are counted. */
void answer_skip(int error, const char *entry);
/* How much it was. Only for archives. */
void answer_totals(uint64_t entries, uint64_t bytes);
_Noreturn void answer_success(uint64_t bytes);

/* A record's field; its length, at most 5 + 33 + both names. `target` NULL for no link. */
size_t answer_record(uint8_t *at, const struct stat *stat, const char *name, const char *target);
/* FILE_RESULT of an open file, also of a symlink. */
void answer_stat(int fd, const struct stat *stat, const char *path);

#endif
