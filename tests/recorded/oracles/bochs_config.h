/* The types that softfloat takes from the configuration of Bochs. */
typedef uint8_t Bit8u; typedef int8_t Bit8s; typedef uint16_t Bit16u; typedef int16_t Bit16s; typedef uint32_t Bit32u; typedef int32_t Bit32s; typedef uint64_t Bit64u; typedef int64_t Bit64s;
#define BX_CPP_INLINE inline
#define BX_LITTLE_ENDIAN
#define BX_CONST64(x) (x##LL)
#define BX_SUPPORT_FPU 1
