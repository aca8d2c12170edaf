/* Sessions: valid frames to begin with, and what can be done to them. */
#include "../fileop.h"
#include "fuzz.h"

uint32_t next_channel = 1;
uint64_t seen[TRACKED][2];

static uint32_t some_channel(void)
{
	uint32_t back = rnd(rnd(4) ? 8 : 200) + 1;
	return rnd(50) == 0 ? rnd(UINT32_MAX) : next_channel > back ? next_channel - back : 1;
}

static uint8_t *put_field(uint8_t *at, uint8_t tag, const void *bytes, uint32_t length)
{
	*at = tag;
	at = put32(at + 1, length);
	memcpy(at, bytes, length);
	return at + length;
}

static uint8_t *put_field32(uint8_t *at, uint8_t tag, uint32_t value)
{
	uint8_t bytes[4];
	put32(bytes, value);
	return put_field(at, tag, bytes, 4);
}

static uint8_t *put_field64(uint8_t *at, uint8_t tag, uint64_t value)
{
	uint8_t bytes[8];
	put64(bytes, value);
	return put_field(at, tag, bytes, 8);
}

static uint8_t *put_exec(uint8_t *at)
{
	static const char *const words[] = { "true", "/bin/sh", "-c", "", "exit 1", "a=b", "/", "nobody", "0:0" };
	for (uint32_t i = rnd(4) + 1; i > 0; i--) {
		const char *word = words[rnd(9)];
		at = put_field(at, 1, word, (uint32_t)strlen(word));
	}
	if (rnd(2))
		at = put_field(at, 2, "NAME=value", 10);
	if (rnd(4) == 0)
		at = put_field(at, 3, "/tmp", 4);
	if (rnd(4) == 0)
		at = put_field(at, 4, "nobody", 6);
	if (rnd(2))
		at = put_field32(at, 5, rnd(8) == 0 ? 1 + 2 * rnd(2) : 2 * rnd(2));
	if (rnd(4) == 0)
		at = put_field64(at, 6, rnd(3));
	if (rnd(4) == 0)
		at = put_field32(at, 7, rnd(UINT32_MAX));
	if (rnd(2))
		at = put_field32(at, 8, WINDOW_MIN + rnd(100000));
	/* Now and then one that does not fit the agent's buffer. */
	if (rnd(1000) == 0)
		at = put_field(at, 2, noise, 65000);
	return at;
}

static uint8_t *put_file(uint8_t *at)
{
	uint8_t operation = (uint8_t)(rnd(20) == 0 ? rnd(256) : rnd(7) + 1);
	at = put_field(put_field(at, 16, &operation, 1), 17, "/tmp/fuzz", 9);
	if (operation == OP_RENAME)
		at = put_field(at, 18, "/tmp/fuzz2", 10);
	for (uint8_t tag = 19; tag <= 21; tag++)
		if (rnd(4) == 0)
			at = put_field32(at, tag, rnd(01000));
	for (uint8_t tag = 22; tag <= 23; tag++)
		if (rnd(4) == 0)
			at = put_field64(at, tag, rnd(1000));
	if (rnd(4) == 0)
		at = put_field(at, 24, noise, 32);
	return rnd(4) ? at : put_field32(at, 25, rnd(4));
}

static uint8_t *put_payload(uint8_t *at, uint8_t type, uint32_t *channel)
{
	uint32_t track = *channel % TRACKED;
	uint32_t length;
	uint8_t port[2];
	switch (type) {
	case F_HELLO:
		*channel = 0;
		memcpy(put32(at, 1), noise + rnd(60000), 16);
		return at + 20;
	case F_EXEC:
		return put_exec(at);
	case F_STDIN:
		length = rnd(8) ? rnd(100) : rnd(DATA_MAX + 1);
		memcpy(at, noise, length);
		return at + length;
	case F_SIGNAL:
		put32(at, rnd(20) ? rnd(66) : rnd(UINT32_MAX));
		at[4] = (uint8_t)(rnd(20) ? rnd(4) : rnd(256));
		return at + 5;
	case F_RESIZE:
		return put32(at, rnd(UINT32_MAX));
	case F_ACK:
		*at = (uint8_t)(rnd(50) ? 1 + rnd(2) : rnd(256));
		return put64(at + 1, rnd(50) ? seen[track][*at == 2] : rnd(100000));
	case F_RESUME:
		return put64(put64(at, seen[track][0]), seen[track][1]);
	case F_PING:
		return put64(at, random_state);
	case F_DIAL:
		put16(port, (uint16_t)rnd(65536));
		at = put_field(at, 10, port, 2);
		return rnd(2) ? at : put_field(at, 9, rnd(2) ? "::1" : "9.9", 3);
	case F_FILE:
		return put_file(at);
	default:
		return at;
	}
}

size_t make_frame(uint8_t *at)
{
	static const uint8_t common[] = { F_EXEC, F_STDIN, F_STDIN,  F_STDIN_EOF, F_SIGNAL, F_RESIZE, F_ACK,  F_ACK,
		                              F_ACK,  F_ACK,   F_RELEASE, F_RELEASE,   F_PING,   F_DIAL,   F_FILE, F_RESUME };
	uint8_t type = rnd(100) == 0 ? F_HELLO : common[rnd(sizeof common)];
	bool opens = type == F_EXEC || type == F_DIAL || type == F_FILE;
	uint32_t channel = opens && rnd(50) ? next_channel++ : some_channel();
	if (opens)
		memset(seen[channel % TRACKED], 0, sizeof *seen);
	uint8_t *payload = at + FRAME_HEADER;
	uint8_t *end = put_payload(payload, type, &channel);
	at[0] = type;
	put32(put32(at + 1, channel), (uint32_t)(end - payload));
	*end++ = FRAME_END;
	return (size_t)(end - at);
}

size_t mutate(uint8_t *frame, size_t length)
{
	/* Seldom the channel: a number far ahead spoils all that come after it. */
	uint32_t at = rnd((uint32_t)length), early = rnd((uint32_t)min_size(length, 24));
	if (rnd(64) && at >= 1 && at <= 4)
		at = 0;
	if (rnd(64) && early >= 1 && early <= 4)
		early = 5;
	switch (rnd(6)) {
	case 0:
		frame[at] ^= (uint8_t)(1 << rnd(8));
		return length;
	case 1:
		frame[early] = (uint8_t)rnd(256);
		return length;
	case 2:
		return rnd((uint32_t)length + 1);
	case 3:
		frame[at] = rnd(2) ? 0 : 255;
		return length;
	case 4:
		memcpy(frame + length, frame, min_size(length, 1000));
		return length + min_size(length, 1000);
	default:
		/* A field's length. */
		if (length > 14)
			put32(frame + 10, rnd(2) ? rnd(64) : rnd(UINT32_MAX));
		return length;
	}
}
