#include "crc32.h"

enum { SLICES = 8 };

/* table[0] is the usual one; table[n] is for a byte that n more follow. */
static uint32_t table[SLICES][256];

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xEDB88320U : crc >> 1;
		table[0][i] = crc;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int slice = 1; slice < SLICES; slice++)
			table[slice][i] = table[slice - 1][i] >> 8 ^ table[0][table[slice - 1][i] & 0xFF];
}

static uint32_t add_by_table(uint32_t crc, const uint8_t *bytes, size_t length)
{
	if (table[0][1] == 0)
		make_table();
	for (; length >= SLICES; length -= SLICES, bytes += SLICES) {
		uint32_t low = get32(bytes) ^ crc, high = get32(bytes + 4);
		crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24] ^
		      table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^ table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
	}
	while (length-- > 0)
		crc = crc >> 8 ^ table[0][(crc ^ *bytes++) & 0xFF];
	return crc;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

enum { FOLD_MIN = 64 };

static bool can_fold(void)
{
	static int can = -1;
	unsigned a, b, c = 0, d;
	if (can < 0)
		can = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_1);
	return can;
}

#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static inline __m128i fold(__m128i sum, __m128i next, __m128i by)
{
	return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(sum, by, 0x00), _mm_clmulepi64_si128(sum, by, 0x11)));
}

/*
 * Multiplication without carries: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009. Takes multiples of 16
 * bytes, at least FOLD_MIN.
 */
FOLDING static uint32_t add_by_folding(uint32_t crc, const uint8_t *bytes, size_t length)
{
	const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
	const __m128i by_4 = _mm_set_epi64x(0, 0x0163cd6124), polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
	const __m128i low_32 = _mm_setr_epi32(~0, 0, ~0, 0);
	const __m128i *at = (const __m128i *)bytes;
	__m128i sum[4];
	for (int i = 0; i < 4; i++)
		sum[i] = _mm_loadu_si128(at++);
	sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int)crc));
	for (length -= 64; length >= 64; length -= 64)
		for (int i = 0; i < 4; i++)
			sum[i] = fold(sum[i], _mm_loadu_si128(at++), by_64);
	__m128i one = sum[0];
	for (int i = 1; i < 4; i++)
		one = fold(one, sum[i], by_16);
	for (; length >= 16; length -= 16)
		one = fold(one, _mm_loadu_si128(at++), by_16);
	/* 128 bits to 64, then to 32. */
	one = _mm_xor_si128(_mm_srli_si128(one, 8), _mm_clmulepi64_si128(one, by_16, 0x10));
	one = _mm_xor_si128(_mm_srli_si128(one, 4), _mm_clmulepi64_si128(_mm_and_si128(one, low_32), by_4, 0x00));
	__m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(one, low_32), polynomial, 0x10);
	quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_32), polynomial, 0x00);
	return (uint32_t)_mm_extract_epi32(_mm_xor_si128(one, quotient), 1);
}
#else
enum { FOLD_MIN = 64 };
static bool can_fold(void) { return false; }
static uint32_t add_by_folding(uint32_t crc, const uint8_t *bytes, size_t length) { return add_by_table(crc, bytes, length); }
#endif

uint32_t crc32_add(uint32_t crc, const uint8_t *bytes, size_t length)
{
	crc = ~crc;
	if (length >= FOLD_MIN && can_fold()) {
		size_t most = length & ~(size_t)15;
		crc = add_by_folding(crc, bytes, most);
		bytes += most;
		length -= most;
	}
	return ~add_by_table(crc, bytes, length);
}
