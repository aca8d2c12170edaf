/* CRC-32 as in zlib, gzip and PNG. */
#ifndef CRC32_H
#define CRC32_H

#include "agent.h"

/* 0 for the first call, then what it gave. */
uint32_t crc32_add(uint32_t crc, const uint8_t *bytes, size_t length);

#endif
