/* One file operation, in the forked child. It speaks to the agent in frames without header: type, then payload. */
#ifndef FILEOP_H
#define FILEOP_H

#include "agent.h"

enum operation { OP_READ = 1, OP_WRITE, OP_STAT, OP_LIST, OP_MKDIR, OP_REMOVE, OP_RENAME, OP_ARCHIVE, OP_EXTRACT };
enum {
	FILE_RECURSIVE = 1,
	FILE_NO_FOLLOW = 2,
	FILE_OWNERS = 4, /* extract: the archive says who owns what */
	/* With the content's end comes what it is checked by. */
	FILE_HASHED = 8,  /* its SHA-256 */
	FILE_SUMMED = 16, /* its CRC-32 */
	FILE_DIRECT = 32, /* write: past the page cache, where that can be */
	FILE_FLAGS = 63,
};

struct content_ring;

struct file_request {
	enum operation operation;
	const char *path, *second, *name; /* name: of the archive's root in it */
	bool has_mode, has_uid, has_gid, has_length, has_hash, has_mtime;
	uint32_t mode, uid, gid, flags, window;
	uint64_t offset, length;
	int64_t mtime; /* ns */
	uint8_t hash[32];
	struct content_ring *content; /* of operations that have one */
};

/* Speaks in packets over `talk`. The process id, or -1 with errno. */
pid_t fileop_start(int talk, const struct file_request *request);

#endif
