/* One file operation, in the forked child. It speaks to the agent in frames without header: type, then payload. */
#ifndef FILEOP_H
#define FILEOP_H

#include "agent.h"

enum operation { OP_READ = 1, OP_WRITE, OP_STAT, OP_LIST, OP_MKDIR, OP_REMOVE, OP_RENAME };
enum { FILE_RECURSIVE = 1, FILE_NO_FOLLOW = 2 };

struct file_request {
	enum operation operation;
	const char *path, *second;
	bool has_mode, has_uid, has_gid, has_length, has_hash;
	uint32_t mode, uid, gid, flags, window;
	uint64_t offset, length;
	uint8_t hash[32];
};

struct file_fds {
	int content; /* of a write: ends when the host is done or gone */
	int talk;    /* sequenced packets; one byte from the agent confirms that the content was complete */
};

/* The process id, or -1 with errno. */
pid_t fileop_start(const struct file_fds *fds, const struct file_request *request);

#endif
