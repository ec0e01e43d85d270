"""The C declarations of libqatzip this package calls, and what its return codes mean.

Struct sizes are equal in 1.1.2, 1.2.0 and 1.3.1 (common and deflate) and in 1.3.0, 1.3.1 and 2.0.0 (all used here).
"""

from enum import Enum

SONAME = "libqatzip.so.3"
REQUIRED_SYMBOLS = ("qzSetupSessionDeflateExt", "qzGetDeflateEndOfStream", "qzSetLogLevel")
"""The first and the last exist from 1.3.0 on."""

DECLARATIONS = """
typedef struct {
    int direction; unsigned int comp_lvl; unsigned char comp_algorithm; unsigned int max_forks;
    unsigned char sw_backup; unsigned int hw_buff_sz; unsigned int strm_buff_sz; unsigned int input_sz_thrshold;
    unsigned int req_cnt_thrshold; unsigned int wait_cnt_thrshold; int polling_mode; unsigned int is_sensitive_mode;
} QzSessionParamsCommon_T;
typedef struct { QzSessionParamsCommon_T common_params; int huffman_hdr; int data_fmt; } QzSessionParamsDeflate_T;
typedef struct {
    QzSessionParamsDeflate_T deflate_params; unsigned char stop_decompression_stream_end; unsigned char zlib_format;
} QzSessionParamsDeflateExt_T;
typedef struct {
    signed long int hw_session_stat; int thd_sess_stat; void *internal;
    unsigned long total_in; unsigned long total_out;
} QzSession_T;
int qzSetLogLevel(int level);
int qzInit(QzSession_T *sess, unsigned char sw_backup);
int qzSetupSessionDeflateExt(QzSession_T *sess, QzSessionParamsDeflateExt_T *params);
int qzCompress(QzSession_T *sess, const unsigned char *src, unsigned int *src_len, unsigned char *dest,
               unsigned int *dest_len, unsigned int last);
int qzDecompress(QzSession_T *sess, const unsigned char *src, unsigned int *src_len, unsigned char *dest,
                 unsigned int *dest_len);
int qzGetDeflateEndOfStream(QzSession_T *sess, unsigned char *end_of_stream);
unsigned int qzMaxCompressedLength(unsigned int src_sz, QzSession_T *sess);
int qzTeardownSession(QzSession_T *sess);
"""

OK = 0
DUPLICATE = 1
LOG_NONE = 0
DIRECTION_BOTH = 2
COMP_DEFLATE = 8
FORMAT_GZIP_EXT = 2


class Outcome(Enum):
    """What the caller does about a return code."""

    DONE = "done"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"
    DAMAGED = "damaged"
    FAILED = "failed"


_BUSY = frozenset({-5, -103, -104})
"""Timeout, no free instance, no memory for one."""

_UNAVAILABLE = frozenset({-101, -102})
"""No hardware, no driver."""


def outcome(code: int) -> Outcome:
    """Meaning of a return code of compress or decompress; every other nonzero one, positive too, is a failure."""
    if code == OK:
        return Outcome.DONE
    if code in _BUSY:
        return Outcome.BUSY
    if code in _UNAVAILABLE:
        return Outcome.UNAVAILABLE
    return Outcome.DAMAGED if code == -4 else Outcome.FAILED
