/* Stands for libqatzip: "compresses" by a stored deflate block and returns what the test asks for. */
#include <stdint.h>
#include <string.h>

typedef struct { long hw; int thd; void *internal; unsigned long total_in, total_out; } Session;

int fake_init = 0, fake_setup = 0, fake_compress = 0, fake_decompress = 0; /* return codes */
long fake_hw = 0;              /* hw_session_stat after qzInit */
int fake_busy = 0;             /* how many calls return -103 first */
int fake_software = 0;         /* 1: total_in stays, as in QATzip's own software */
int fake_short = 0;            /* bytes left out of consumed or produced */
int fake_end = 1;              /* end of stream flag */
int fake_garbage = 0;          /* 1: the member written is damaged */
int fake_fill = 0;             /* decompress: bytes differ from the data */
int fake_calls = 0, fake_teardowns = 0, fake_setups = 0, fake_inits = 0, fake_backup = -1;

static uint32_t crc(const unsigned char *p, unsigned n) {
    uint32_t c = ~0u;
    for (unsigned i = 0; i < n; i++) { c ^= p[i]; for (int k = 0; k < 8; k++) c = c >> 1 ^ (0xEDB88320u & -(c & 1)); }
    return ~c;
}
static void put32(unsigned char *p, uint32_t v) { memcpy(p, &v, 4); }

int qzSetLogLevel(int level) { return level; }
int qzInit(Session *s, unsigned char backup) { fake_inits++; fake_backup = backup; s->hw = fake_hw; return fake_init; }
int qzSetupSessionDeflateExt(Session *s, void *p) { fake_setups++; return fake_setup; }
int qzTeardownSession(Session *s) { fake_teardowns++; return 0; }
unsigned qzMaxCompressedLength(unsigned n, Session *s) { return n + 100; }
int qzGetDeflateEndOfStream(Session *s, unsigned char *end) { *end = fake_end; return 0; }

int qzCompress(Session *s, const unsigned char *src, unsigned *n, unsigned char *dst, unsigned *m, unsigned last) {
    fake_calls++;
    if (fake_busy > 0) { fake_busy--; return -103; }
    if (fake_compress) return fake_compress;
    unsigned half = *n / 2, lens[2] = {half, *n - half}, at = 24;
    memcpy(dst, "\x1f\x8b\x08\x04\0\0\0\0\0\xff\x0c\0QZ\x08\0", 16);
    put32(dst + 16, *n);
    for (int b = 0; b < 2; b++) {
        uint16_t len = lens[b], inverse = ~len;
        dst[at] = b; memcpy(dst + at + 1, &len, 2); memcpy(dst + at + 3, &inverse, 2);
        memcpy(dst + at + 5, src + (b ? half : 0), len); at += 5 + len;
    }
    put32(dst + 20, at - 24);
    put32(dst + at, crc(src, *n)); put32(dst + at + 4, *n);
    if (fake_garbage) dst[12] = 'X';
    *m = at + 8;
    if (!fake_software) s->total_in += *n;
    *n -= fake_short;
    return 0;
}

int qzDecompress(Session *s, const unsigned char *src, unsigned *n, unsigned char *dst, unsigned *m) {
    fake_calls++;
    if (fake_busy > 0) { fake_busy--; return -103; }
    if (fake_decompress) return fake_decompress;
    unsigned at = 24, out = 0;
    for (int b = 0; b < 2; b++) { uint16_t len; memcpy(&len, src + at + 1, 2);
        if (src[at] != b || out + len > *m || at + 5 + len > *n) return -2; /* not written here */
        memcpy(dst + out, src + at + 5, len);
        out += len; at += 5 + len; }
    if (fake_fill) dst[0] ^= 1;
    *m = out - fake_short;
    if (!fake_software) s->total_in += *n;
    return 0;
}
