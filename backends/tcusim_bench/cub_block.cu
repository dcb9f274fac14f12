// The peer "CUB, warp or block" of the benchmark: a warp or a block sums or scans each segment, with
// CUB's collectives. A shared library with a plain C interface, as cub.cu has it.
//
// What the paper's authors tuned, `way` chooses: the threads of a block, and the elements of each.
#include <cub/cub.cuh>
#include <cuda_fp16.h>

using std::size_t;

template <int Size, int kThreads>
__global__ void warp_sum(const half* in, float* out, long long segments) {
    using Reduce = cub::WarpReduce<float, Size>;
    __shared__ typename Reduce::TempStorage temp[kThreads / Size];
    const int group = threadIdx.x / Size, lane = threadIdx.x % Size;
    const long long segment = blockIdx.x * static_cast<long long>(kThreads / Size) + group;
    const float value = segment < segments ? __half2float(in[segment * Size + lane]) : 0.0f;
    const float sum = Reduce(temp[group]).Sum(value);
    if (lane == 0 && segment < segments) out[segment] = sum;
}

template <int Size, int kThreads>
__global__ void warp_scan(const half* in, half* out, long long segments) {
    using Scan = cub::WarpScan<float, Size>;
    __shared__ typename Scan::TempStorage temp[kThreads / Size];
    const int group = threadIdx.x / Size, lane = threadIdx.x % Size;
    const long long segment = blockIdx.x * static_cast<long long>(kThreads / Size) + group;
    float value = segment < segments ? __half2float(in[segment * Size + lane]) : 0.0f;
    Scan(temp[group]).InclusiveSum(value, value);
    if (segment < segments) out[segment * Size + lane] = __float2half(value);
}

template <int Threads, int Items>
__global__ void block_sum(const half* in, float* out) {
    using Reduce = cub::BlockReduce<float, Threads>;
    __shared__ typename Reduce::TempStorage temp;
    half items[Items];
    const half* segment = in + blockIdx.x * static_cast<long long>(Threads * Items);
    cub::LoadDirectBlockedVectorized(threadIdx.x, const_cast<half*>(segment), items);
    float values[Items];
    for (int i = 0; i < Items; ++i) values[i] = __half2float(items[i]);
    const float sum = Reduce(temp).Sum(values);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

template <int Threads, int Items>
__global__ void block_scan(const half* in, half* out) {
    using Scan = cub::BlockScan<float, Threads>;
    __shared__ typename Scan::TempStorage temp;
    half items[Items];
    const long long start = blockIdx.x * static_cast<long long>(Threads * Items);
    cub::LoadDirectBlockedVectorized(threadIdx.x, const_cast<half*>(in + start), items);
    float values[Items];
    for (int i = 0; i < Items; ++i) values[i] = __half2float(items[i]);
    Scan(temp).InclusiveSum(values, values);
    for (int i = 0; i < Items; ++i) items[i] = __float2half(values[i]);
    cub::StoreDirectBlockedVectorized(threadIdx.x, out + start, items);
}

// Segment size, and by way the threads of a block that has several warps' segments.
#define FOR_WARPS(CASE) \
    CASE(16, 0, 256) CASE(16, 1, 128) CASE(16, 2, 512) \
    CASE(32, 0, 256) CASE(32, 1, 128) CASE(32, 2, 512)

// Segment size, and by way the threads of its block and their elements, the authors' choice first.
#define FOR_BLOCKS(CASE) \
    CASE(64, 0, 64, 1) CASE(64, 1, 16, 4) CASE(64, 2, 32, 2) \
    CASE(128, 0, 128, 1) CASE(128, 1, 32, 4) CASE(128, 2, 64, 2) \
    CASE(256, 0, 256, 1) CASE(256, 1, 32, 8) CASE(256, 2, 64, 4) \
    CASE(512, 0, 32, 16) CASE(512, 1, 64, 8) CASE(512, 2, 128, 4) \
    CASE(1024, 0, 64, 16) CASE(1024, 1, 128, 8) CASE(1024, 2, 256, 4) \
    CASE(2048, 0, 128, 16) CASE(2048, 1, 256, 8) CASE(2048, 2, 512, 4) \
    CASE(4096, 0, 256, 16) CASE(4096, 1, 512, 8) CASE(4096, 2, 1024, 4) \
    CASE(8192, 0, 512, 16) CASE(8192, 1, 1024, 8) CASE(8192, 2, 256, 32)

static constexpr long long key(long long size, long long way) { return 4 * size + way; }

static unsigned warp_blocks(long long segments, int size, int threads) {
    return static_cast<unsigned>((segments * size + threads - 1) / threads);
}

extern "C" int block_sum_f32(void* temp, size_t* bytes, const half* in, float* out,
                             long long segments, long long size, long long way) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    switch (key(size, way)) {
#define CASE(SIZE, WAY, THREADS) \
    case key(SIZE, WAY): \
        warp_sum<SIZE, THREADS><<<warp_blocks(segments, SIZE, THREADS), THREADS>>>(in, out, \
                                                                                   segments); \
        break;
    FOR_WARPS(CASE)
#undef CASE
#define CASE(SIZE, WAY, THREADS, ITEMS) \
    case key(SIZE, WAY): block_sum<THREADS, ITEMS><<<segments, THREADS>>>(in, out); break;
    FOR_BLOCKS(CASE)
#undef CASE
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

extern "C" int block_scan_f16(void* temp, size_t* bytes, const half* in, half* out,
                              long long segments, long long size, long long way) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    switch (key(size, way)) {
#define CASE(SIZE, WAY, THREADS) \
    case key(SIZE, WAY): \
        warp_scan<SIZE, THREADS><<<warp_blocks(segments, SIZE, THREADS), THREADS>>>(in, out, \
                                                                                    segments); \
        break;
    FOR_WARPS(CASE)
#undef CASE
#define CASE(SIZE, WAY, THREADS, ITEMS) \
    case key(SIZE, WAY): block_scan<THREADS, ITEMS><<<segments, THREADS>>>(in, out); break;
    FOR_BLOCKS(CASE)
#undef CASE
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
