/* CUDA's vector types with their alignments, and make_<type>; part of device.h. */
#ifndef ARRAYD_FAKE_DEVICE_VECTOR_H
#define ARRAYD_FAKE_DEVICE_VECTOR_H

/* Two and four lanes are aligned to their size, to 16 bytes at most; one and three as a lane. */
#define FAKE_VECTOR(name, T)                                                                       \
    struct name##1                                                                                 \
    {                                                                                              \
        T x;                                                                                       \
    };                                                                                             \
    struct __attribute__((aligned(2 * sizeof(T)))) name##2                                         \
    {                                                                                              \
        T x, y;                                                                                    \
    };                                                                                             \
    struct __attribute__((aligned(sizeof(T) < 4 ? 4 * sizeof(T) : 16))) name##4                    \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    FAKE_FN name##1 make_##name##1(T x)                                                            \
    {                                                                                              \
        return name##1 {x};                                                                        \
    }                                                                                              \
    FAKE_FN name##2 make_##name##2(T x, T y)                                                       \
    {                                                                                              \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    FAKE_FN name##4 make_##name##4(T x, T y, T z, T w)                                             \
    {                                                                                              \
        return name##4 {x, y, z, w};                                                               \
    }
#define FAKE_VECTOR3(name, T)                                                                      \
    struct name##3                                                                                 \
    {                                                                                              \
        T x, y, z;                                                                                 \
    };                                                                                             \
    FAKE_FN name##3 make_##name##3(T x, T y, T z)                                                  \
    {                                                                                              \
        return name##3 {x, y, z};                                                                  \
    }

FAKE_VECTOR(char, signed char)
FAKE_VECTOR(uchar, unsigned char)
FAKE_VECTOR(short, short)
FAKE_VECTOR(ushort, unsigned short)
FAKE_VECTOR(int, int)
FAKE_VECTOR(uint, unsigned)
FAKE_VECTOR(long, long)
FAKE_VECTOR(ulong, unsigned long)
FAKE_VECTOR(longlong, long long)
FAKE_VECTOR(ulonglong, unsigned long long)
FAKE_VECTOR(float, float)
FAKE_VECTOR(double, double)
FAKE_VECTOR3(char, signed char)
FAKE_VECTOR3(uchar, unsigned char)
FAKE_VECTOR3(short, short)
FAKE_VECTOR3(ushort, unsigned short)
FAKE_VECTOR3(int, int)
FAKE_VECTOR3(long, long)
FAKE_VECTOR3(ulong, unsigned long)
FAKE_VECTOR3(longlong, long long)
FAKE_VECTOR3(ulonglong, unsigned long long)
FAKE_VECTOR3(float, float)
FAKE_VECTOR3(double, double)
FAKE_FN uint3 make_uint3(unsigned x, unsigned y, unsigned z)
{
    return uint3{x, y, z};
}

#endif
