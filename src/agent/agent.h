/* What every file of the agent shares: the protocol's numbers (PROTOCOL.md), limits, little-endian access. */
#ifndef AGENT_H
#define AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

enum {
	PROTOCOL_VERSION = 1,
	FRAME_HEADER = 9,
	FRAME_END = 0xA5,
	FRAME_OVERHEAD = FRAME_HEADER + 1,
	PAYLOAD_MAX = 262144,
	REQUEST_MAX = 16384, /* of DIAL and FILE */
	DATA_MAX = 32768,
	DATA_PREFIX = 9, /* stream u8, offset u64 */
	CHANNELS_MAX = 4096,
	STDIN_WINDOW = 65536,
	STDIN_MAX = 65536, /* of one frame */
	CONTENT_WINDOW = 1048576, /* of a file's content */
	WINDOW_DEFAULT = 131072,
	WINDOW_MIN = 32768, /* one DATA frame always fits */
	WINDOW_MAX = 4194304,
};

enum frame_type {
	F_HELLO = 0x01,
	F_EXEC,
	F_STDIN,
	F_STDIN_EOF,
	F_SIGNAL,
	F_RESIZE,
	F_ACK,
	F_RESUME,
	F_RELEASE,
	F_PING,
	F_DIAL,
	F_FILE,
	F_HELLO_ACK = 0x81,
	F_STARTED,
	F_DATA,
	F_STDIN_ACK,
	F_EXIT,
	F_ERROR,
	F_PONG,
	F_FILE_RESULT,
};

enum error_code {
	E_MALFORMED = 1,
	E_USER,
	E_CWD,
	E_NOT_FOUND,
	E_NOT_EXECUTABLE,
	E_LIMIT,
	E_SYSTEM,
	E_NO_CHANNEL,
	E_CHANNEL_USED,
	E_CONTENT,
	E_ARCHIVE,
};

static inline uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32; }
static inline uint8_t *put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
	return p + 2;
}
static inline uint8_t *put32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
	return p + 4;
}
static inline uint8_t *put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> 8 * i);
	return p + 8;
}

static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

#endif
