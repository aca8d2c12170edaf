/* Members of a tar archive (POSIX.1-2001 "pax"; GNU's long names are understood, too). Pure: no descriptors. */
#ifndef TAR_H
#define TAR_H

#include "agent.h"

enum {
	TAR_BLOCK = 512,
	TAR_PATH_MAX = 65536,
	/* Of an extended header: a path, what it is a link to, and what is short. */
	TAR_EXTENDED_MAX = 2 * TAR_PATH_MAX + 512,
	/* A header that is written: the extended one and its records, then the member's own. */
	TAR_HEADER_MAX = 3 * TAR_BLOCK + TAR_EXTENDED_MAX,
};

struct tar_member {
	char type; /* '0' file, '1' hard link, '2' symlink, '5' directory; others as found */
	uint32_t mode;
	uint64_t uid, gid, size;
	int64_t seconds; /* of its last change */
	uint32_t nanoseconds;
	bool sparse; /* in one of GNU's formats for files with holes */
	const char *name, *link;
};

/* Writes the header to `at`; its length, a multiple of TAR_BLOCK. */
size_t tar_put(uint8_t *at, const struct tar_member *member);

/* What extended headers say of the next member. */
struct tar_extended {
	bool has_size, has_uid, has_gid, has_time, sparse;
	uint64_t size, uid, gid;
	int64_t seconds;
	uint32_t nanoseconds;
	char *name, *link; /* in the records themselves */
};

/* False: the checksum is wrong. `name` and `link` are put into the given buffers of 257 and 101 bytes. */
bool tar_get(const uint8_t block[TAR_BLOCK], struct tar_member *member, char name[257], char link[101]);
/* Reads the records of an 'x' header, in place. False when they are none. */
bool tar_extend(struct tar_extended *extended, char *records, size_t length);
/* What the extended headers say goes before what the header itself does. */
void tar_apply(struct tar_member *member, const struct tar_extended *extended);
bool tar_is_zero(const uint8_t block[TAR_BLOCK]);

#endif
