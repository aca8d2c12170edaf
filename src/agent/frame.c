#include "frame.h"

#include <stdlib.h>

static bool length_fits(uint8_t type, uint32_t length)
{
	switch (type) {
	case F_HELLO:
		return length == 20;
	case F_EXEC:
		return length <= PAYLOAD_MAX;
	case F_STDIN:
		return length <= STDIN_MAX;
	case F_SIGNAL:
		return length == 5;
	case F_RESIZE:
		return length == 4;
	case F_ACK:
		return length == 9;
	case F_RESUME:
		return length == 16;
	case F_PING:
		return length == 8;
	case F_STDIN_EOF:
		return length == 0 || length == 4 || length == 32;
	case F_RELEASE:
		return length == 0;
	case F_DIAL:
	case F_FILE:
		return length <= REQUEST_MAX;
	default:
		return false;
	}
}

/* Where a HELLO may begin in data: the first place that agrees with one as far as the bytes go. */
static size_t seek_hello(const uint8_t *data, size_t length)
{
	static const uint8_t hello[FRAME_HEADER] = { F_HELLO, 0, 0, 0, 0, 20, 0, 0, 0 };
	for (size_t at = 0; at < length; at++)
		if (data[at] == F_HELLO && memcmp(data + at, hello, min_size(length - at, sizeof hello)) == 0)
			return at;
	return length;
}

void frame_reset(struct parser *parser)
{
	free(parser->large);
	memset(parser, 0, sizeof *parser);
}

void frame_done(struct parser *parser)
{
	free(parser->large);
	parser->large = NULL;
}

static enum parse gather(struct parser *parser, const uint8_t *data, size_t length, size_t *used, struct frame *frame)
{
	size_t take = min_size(length, parser->need);
	if (parser->large)
		memcpy(parser->large + parser->have, data, take);
	*used += take;
	parser->have += take;
	parser->need -= take;
	if (parser->need > 0)
		return PARSE_MORE;
	/* The end mark is the last byte taken. */
	if (data[take - 1] != FRAME_END) {
		frame_done(parser);
		parser->seeking = true;
		return PARSE_LOST;
	}
	*frame = parser->head;
	frame->payload = parser->large;
	frame->dropped = !parser->large;
	return PARSE_FRAME;
}

enum parse frame_parse(struct parser *parser, const uint8_t *data, size_t length, size_t capacity, size_t *used,
                       struct frame *frame)
{
	*used = 0;
	if (parser->need > 0)
		return length > 0 ? gather(parser, data, length, used, frame) : PARSE_MORE;
	if (parser->seeking)
		*used = seek_hello(data, length);
	else
		while (*used < length && data[*used] == 0)
			++*used;
	data += *used;
	length -= *used;
	if (length < FRAME_HEADER)
		return PARSE_MORE;

	struct frame head = { .type = data[0], .channel = get32(data + 1), .length = get32(data + 5) };
	if (!length_fits(head.type, (uint32_t)head.length)) {
		parser->seeking = true;
		return PARSE_LOST;
	}
	if (head.length + FRAME_OVERHEAD > capacity) {
		parser->head = head;
		parser->have = 0;
		parser->need = head.length + 1;
		parser->large = malloc(parser->need);
		*used += FRAME_HEADER;
		length -= FRAME_HEADER;
		return length > 0 ? gather(parser, data + FRAME_HEADER, length, used, frame) : PARSE_MORE;
	}
	if (length < head.length + FRAME_OVERHEAD)
		return PARSE_MORE;
	if (data[FRAME_HEADER + head.length] != FRAME_END) {
		/*
		 * While seeking only the pattern is skipped, not its bytes: it may have been part of something else. Otherwise
		 * the whole frame is, so that what a cut-off frame carried is never taken for a HELLO.
		 */
		*used += parser->seeking ? 1 : head.length + FRAME_OVERHEAD;
		parser->seeking = true;
		return PARSE_LOST;
	}
	parser->seeking = false;
	*used += head.length + FRAME_OVERHEAD;
	*frame = head;
	frame->payload = data + FRAME_HEADER;
	return PARSE_FRAME;
}

bool field_next(const uint8_t **at, const uint8_t *end, struct field *field, bool *malformed)
{
	size_t left = (size_t)(end - *at);
	if (left == 0)
		return false;
	if (left < 5 || get32(*at + 1) > left - 5) {
		*malformed = true;
		return false;
	}
	field->tag = (*at)[0];
	field->length = get32(*at + 1);
	field->bytes = *at + 5;
	*at += 5 + field->length;
	return true;
}
