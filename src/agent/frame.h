/* The frame parser (host to agent) and the reader of a request's fields. Pure: no descriptors, no globals. */
#ifndef FRAME_H
#define FRAME_H

#include "agent.h"

struct frame {
	uint8_t type;
	uint32_t channel;
	const uint8_t *payload;
	size_t length;
	bool dropped; /* there was no memory for the payload; it was skipped */
};

enum parse { PARSE_MORE, PARSE_FRAME, PARSE_LOST };

struct parser {
	bool seeking;    /* discards everything until a HELLO */
	uint8_t *large;  /* a frame that does not fit the caller's buffer: payload and end mark */
	size_t need;     /* bytes of that frame still to come, 0 when there is none */
	size_t have;
	struct frame head;
};

/*
 * Looks at data[0..length). Sets *used to the bytes that need not be shown again; they stay untouched until then,
 * as a frame's payload may lie in them. `capacity` is the size of the caller's buffer: larger frames are gathered apart.
 */
enum parse frame_parse(struct parser *parser, const uint8_t *data, size_t length, size_t capacity, size_t *used,
                       struct frame *frame);
void frame_reset(struct parser *parser);
/* After the frame was handled. */
void frame_done(struct parser *parser);

struct field {
	uint8_t tag;
	const uint8_t *bytes;
	uint32_t length;
};

/* Takes the next field from [*at, end). False at the end; sets *malformed when what is left is not a field. */
bool field_next(const uint8_t **at, const uint8_t *end, struct field *field, bool *malformed);

#endif
