/* SHA-256 by the instructions that most x86 processors have for it: a tenth of the time. */
#include "sha256_x86.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

bool sha256_x86_usable(void)
{
	unsigned a, b, c, d;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b & (1U << 29);
}

__attribute__((target("sha,sse4.1"))) void sha256_x86_blocks(uint32_t state[8], const uint8_t *bytes, size_t count, const uint32_t constants[64])
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bULL, 0x0405060700010203ULL);
	__m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xB1);
	__m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1B);
	/* The instructions want the words as ABEF and CDGH. */
	__m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);
	for (; count > 0; count--, bytes += 64) {
		const __m128i abef_before = abef, cdgh_before = cdgh;
		__m128i w[4];
		for (int i = 0; i < 4; i++)
			w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(bytes + 16 * i)), swap);
		/* Four rounds a turn; w[i % 4] holds their words and then those of 16 rounds later. */
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) {
			__m128i sum = _mm_add_epi32(w[i % 4], _mm_loadu_si128((const __m128i *)(constants + 4 * i)));
			cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
			abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
			if (i >= 12)
				continue;
			__m128i next = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
			next = _mm_add_epi32(next, _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
			w[i % 4] = _mm_sha256msg2_epu32(next, w[(i + 3) % 4]);
		}
		abef = _mm_add_epi32(abef, abef_before);
		cdgh = _mm_add_epi32(cdgh, cdgh_before);
	}
	low = _mm_shuffle_epi32(abef, 0x1B);
	high = _mm_shuffle_epi32(cdgh, 0xB1);
	_mm_storeu_si128((__m128i *)state, _mm_blend_epi16(low, high, 0xF0));
	_mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(high, low, 8));
}
#else
bool sha256_x86_usable(void) { return false; }
void sha256_x86_blocks(uint32_t state[8], const uint8_t *bytes, size_t count, const uint32_t constants[64])
{
	(void)state, (void)bytes, (void)count, (void)constants;
}
#endif
