// The peer "CUB, warp or block" of the benchmark: a warp or a block sums or scans each segment, with
// CUB's collectives. A shared library with a plain C interface, as cub.cu has it.
//
// kSums and kScans list the configurations of each segment size, a row each; cub.py reads the rows.
#include <cub/cub.cuh>
#include <cuda_fp16.h>

#include <algorithm>
#include <climits>

using std::size_t;

// Halves that a thread moves at once: 16 bytes. Collectives move the elements of `half` one at a
// time, 2 bytes each, which is several times as slow.
static constexpr int kVector = 8;
// Elements of a thread that are contiguous.
template <int Items>
static constexpr int kRun = Items < kVector ? Items : kVector;

// How a block gets its elements: 16 bytes a thread, or words that warps transpose in shared memory.
enum Move { VECTORS, TRANSPOSE };
// Whether there is a block for each segment, or as many as run at once, which take several.
enum Grid { ONCE, PERSISTENT };

constexpr auto WARPS = cub::BLOCK_REDUCE_WARP_REDUCTIONS;
constexpr auto RAKING = cub::BLOCK_REDUCE_RAKING;
constexpr auto COMMUTATIVE = cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY;
constexpr auto SCAN_WARPS = cub::BLOCK_SCAN_WARP_SCANS;
constexpr auto SCAN_RAKING = cub::BLOCK_SCAN_RAKING;
constexpr auto SCAN_MEMOIZE = cub::BLOCK_SCAN_RAKING_MEMOIZE;

// --- Elements of a thread ------------------------------------------------------------------------

// Load vectors `stride` vectors apart, or fewer elements than a vector has.
template <int Items>
__device__ void load(const half* in, int stride, float (&values)[Items]) {
    if constexpr (Items % kVector == 0) {
#pragma unroll
        for (int v = 0; v < Items / kVector; ++v) {
            const uint4 bits = reinterpret_cast<const uint4*>(in)[v * stride];
            const half2* pairs = reinterpret_cast<const half2*>(&bits);
#pragma unroll
            for (int i = 0; i < kVector / 2; ++i) {
                const float2 pair = __half22float2(pairs[i]);
                values[v * kVector + 2 * i] = pair.x;
                values[v * kVector + 2 * i + 1] = pair.y;
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < Items; ++i) values[i] = __half2float(in[i]);
    }
}

template <int Items>
__device__ void store(half* out, int stride, const float (&values)[Items]) {
    if constexpr (Items % kVector == 0) {
#pragma unroll
        for (int v = 0; v < Items / kVector; ++v) {
            uint4 bits;
            half2* pairs = reinterpret_cast<half2*>(&bits);
#pragma unroll
            for (int i = 0; i < kVector / 2; ++i) {
                pairs[i] = __floats2half2_rn(values[v * kVector + 2 * i],
                                             values[v * kVector + 2 * i + 1]);
            }
            reinterpret_cast<uint4*>(out)[v * stride] = bits;
        }
    } else {
#pragma unroll
        for (int i = 0; i < Items; ++i) out[i] = __float2half(values[i]);
    }
}

// --- A warp, or a part of one, for each segment --------------------------------------------------

template <int Lanes, int Items, int Threads>
__global__ __launch_bounds__(Threads) void warp_sum(const half* in, float* out,
                                                    long long segments) {
    using Reduce = cub::WarpReduce<float, Lanes>;
    __shared__ typename Reduce::TempStorage temp[Threads / Lanes];
    const int group = threadIdx.x / Lanes, lane = threadIdx.x % Lanes;
    const long long segment = blockIdx.x * static_cast<long long>(Threads / Lanes) + group;
    if (segment >= segments) return;
    float values[Items], sum = 0.0f;
    // Any order of the elements will do: the lanes read contiguous vectors.
    load(in + segment * (Lanes * Items) + lane * kRun<Items>, Lanes, values);
#pragma unroll
    for (int i = 0; i < Items; ++i) sum += values[i];
    sum = Reduce(temp[group]).Sum(sum);
    if (lane == 0) out[segment] = sum;
}

// A vector a lane is scanned at a time, and the sum of those before it is carried on.
template <int Lanes, int Items, int Threads>
__global__ __launch_bounds__(Threads) void warp_scan(const half* in, half* out,
                                                     long long segments) {
    using Scan = cub::WarpScan<float, Lanes>;
    __shared__ typename Scan::TempStorage temp[Threads / Lanes];
    constexpr int kEach = kRun<Items>;
    const int group = threadIdx.x / Lanes, lane = threadIdx.x % Lanes;
    const long long segment = blockIdx.x * static_cast<long long>(Threads / Lanes) + group;
    if (segment >= segments) return;
    const long long start = segment * (Lanes * Items) + lane * kEach;
    float values[Items], carry = 0.0f;
    load(in + start, Lanes, values);
#pragma unroll
    for (int first = 0; first < Items; first += kEach) {
        float before, total;
#pragma unroll
        for (int i = 1; i < kEach; ++i) values[first + i] += values[first + i - 1];
        Scan(temp[group]).ExclusiveSum(values[first + kEach - 1], before, total);
#pragma unroll
        for (int i = 0; i < kEach; ++i) values[first + i] += carry + before;
        carry += total;
    }
    store(out + start, Lanes, values);
}

// --- A block for each segment --------------------------------------------------------------------

template <int Threads, int Items, cub::BlockReduceAlgorithm Algorithm>
__global__ __launch_bounds__(Threads) void block_sum(const half* in, float* out,
                                                     long long segments) {
    using Reduce = cub::BlockReduce<float, Threads, Algorithm>;
    __shared__ typename Reduce::TempStorage temp;
    for (long long segment = blockIdx.x; segment < segments; segment += gridDim.x) {
        if (segment != blockIdx.x) __syncthreads();
        float values[Items];
        load(in + segment * (Threads * Items) + threadIdx.x * kRun<Items>, Threads, values);
        const float sum = Reduce(temp).Sum(values);
        if (threadIdx.x == 0) out[segment] = sum;
    }
}

template <int Threads, int Items, cub::BlockScanAlgorithm Algorithm, Move How>
__global__ __launch_bounds__(Threads) void block_scan(const half* in, half* out,
                                                      long long segments) {
    using Scan = cub::BlockScan<float, Threads, Algorithm>;
    __shared__ typename Scan::TempStorage temp;
    for (long long segment = blockIdx.x; segment < segments; segment += gridDim.x) {
        if (segment != blockIdx.x) __syncthreads();
        const long long start = segment * (Threads * Items);
        float values[Items];
        if constexpr (How == VECTORS) {
            load(in + start + threadIdx.x * Items, 1, values);
            Scan(temp).InclusiveSum(values, values);
            store(out + start + threadIdx.x * Items, 1, values);
        } else {
            constexpr int kWords = Items / 2;
            using Load = cub::BlockLoad<unsigned, Threads, kWords, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
            using Store =
                cub::BlockStore<unsigned, Threads, kWords, cub::BLOCK_STORE_WARP_TRANSPOSE>;
            // Warps transpose in places of their own, which the scan's barriers separate.
            __shared__ union { typename Load::TempStorage load; typename Store::TempStorage store; }
                moved;
            unsigned words[kWords];
            half2* pairs = reinterpret_cast<half2*>(words);
            Load(moved.load).Load(reinterpret_cast<const unsigned*>(in + start), words);
#pragma unroll
            for (int i = 0; i < kWords; ++i) {
                const float2 pair = __half22float2(pairs[i]);
                values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
            }
            Scan(temp).InclusiveSum(values, values);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < kWords; ++i) {
                pairs[i] = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
            }
            Store(moved.store).Store(reinterpret_cast<unsigned*>(out + start), words);
        }
    }
}

// --- Configurations ------------------------------------------------------------------------------

template <class Out>
struct Way {
    long long size;
    int (*launch)(const half* in, Out* out, long long segments);
};

// Return the blocks of a kernel that the GPU runs at once.
template <class Kernel>
static long long blocks_at_once(Kernel kernel, int threads) {
    int device = 0, processors = 0, blocks = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0);
    return std::max(1LL, static_cast<long long>(processors) * blocks);
}

template <int Lanes, int Items, int Threads>
static int warp_sums(const half* in, float* out, long long segments) {
    const long long each = Threads / Lanes, blocks = (segments + each - 1) / each;
    warp_sum<Lanes, Items, Threads><<<static_cast<unsigned>(blocks), Threads>>>(in, out, segments);
    return cudaGetLastError();
}

template <int Lanes, int Items, int Threads>
static int warp_scans(const half* in, half* out, long long segments) {
    const long long each = Threads / Lanes, blocks = (segments + each - 1) / each;
    warp_scan<Lanes, Items, Threads><<<static_cast<unsigned>(blocks), Threads>>>(in, out, segments);
    return cudaGetLastError();
}

template <int Threads, int Items, cub::BlockReduceAlgorithm Algorithm, Grid Blocks>
static int block_sums(const half* in, float* out, long long segments) {
    const auto kernel = block_sum<Threads, Items, Algorithm>;
    static const long long most = Blocks == ONCE ? LLONG_MAX : blocks_at_once(kernel, Threads);
    kernel<<<static_cast<unsigned>(std::min(segments, most)), Threads>>>(in, out, segments);
    return cudaGetLastError();
}

template <int Threads, int Items, cub::BlockScanAlgorithm Algorithm, Move How, Grid Blocks>
static int block_scans(const half* in, half* out, long long segments) {
    const auto kernel = block_scan<Threads, Items, Algorithm, How>;
    static const long long most = Blocks == ONCE ? LLONG_MAX : blocks_at_once(kernel, Threads);
    kernel<<<static_cast<unsigned>(std::min(segments, most)), Threads>>>(in, out, segments);
    return cudaGetLastError();
}

// The first of each size is the authors' on the V100: lanes or threads, and the elements of each.
static const Way<float> kSums[] = {
    {16 * 1, warp_sums<16, 1, 256>},
    {16 * 1, warp_sums<16, 1, 512>},
    {2 * 8, warp_sums<2, 8, 128>},
    {2 * 8, warp_sums<2, 8, 256>},
    {2 * 8, warp_sums<2, 8, 512>},
    {32 * 1, warp_sums<32, 1, 256>},
    {32 * 1, warp_sums<32, 1, 512>},
    {4 * 8, warp_sums<4, 8, 128>},
    {4 * 8, warp_sums<4, 8, 256>},
    {4 * 8, warp_sums<4, 8, 512>},
    {2 * 16, warp_sums<2, 16, 256>},
    {64 * 1, block_sums<64, 1, WARPS, ONCE>},
    {8 * 8, warp_sums<8, 8, 128>},
    {8 * 8, warp_sums<8, 8, 256>},
    {8 * 8, warp_sums<8, 8, 512>},
    {4 * 16, warp_sums<4, 16, 256>},
    {128 * 1, block_sums<128, 1, WARPS, ONCE>},
    {16 * 8, warp_sums<16, 8, 128>},
    {16 * 8, warp_sums<16, 8, 256>},
    {16 * 8, warp_sums<16, 8, 512>},
    {8 * 16, warp_sums<8, 16, 256>},
    {256 * 1, block_sums<256, 1, WARPS, ONCE>},
    {32 * 8, block_sums<32, 8, WARPS, ONCE>},
    {32 * 8, warp_sums<32, 8, 128>},
    {32 * 8, warp_sums<32, 8, 256>},
    {32 * 8, warp_sums<32, 8, 512>},
    {16 * 16, warp_sums<16, 16, 256>},
    {32 * 16, block_sums<32, 16, WARPS, ONCE>},
    {64 * 8, block_sums<64, 8, WARPS, ONCE>},
    {64 * 8, block_sums<64, 8, WARPS, PERSISTENT>},
    {32 * 16, warp_sums<32, 16, 128>},
    {32 * 16, warp_sums<32, 16, 256>},
    {32 * 16, warp_sums<32, 16, 512>},
    {16 * 32, warp_sums<16, 32, 256>},
    {64 * 16, block_sums<64, 16, WARPS, ONCE>},
    {64 * 16, block_sums<64, 16, RAKING, ONCE>},
    {64 * 16, block_sums<64, 16, COMMUTATIVE, ONCE>},
    {64 * 16, block_sums<64, 16, WARPS, PERSISTENT>},
    {128 * 8, block_sums<128, 8, WARPS, ONCE>},
    {128 * 8, block_sums<128, 8, WARPS, PERSISTENT>},
    {32 * 32, block_sums<32, 32, WARPS, ONCE>},
    {32 * 32, block_sums<32, 32, WARPS, PERSISTENT>},
    {32 * 32, warp_sums<32, 32, 128>},
    {32 * 32, warp_sums<32, 32, 256>},
    {32 * 32, warp_sums<32, 32, 512>},
    {128 * 16, block_sums<128, 16, WARPS, ONCE>},
    {128 * 16, block_sums<128, 16, RAKING, ONCE>},
    {128 * 16, block_sums<128, 16, COMMUTATIVE, ONCE>},
    {128 * 16, block_sums<128, 16, WARPS, PERSISTENT>},
    {256 * 8, block_sums<256, 8, WARPS, ONCE>},
    {256 * 8, block_sums<256, 8, WARPS, PERSISTENT>},
    {64 * 32, block_sums<64, 32, WARPS, ONCE>},
    {64 * 32, block_sums<64, 32, WARPS, PERSISTENT>},
    {256 * 16, block_sums<256, 16, WARPS, ONCE>},
    {256 * 16, block_sums<256, 16, RAKING, ONCE>},
    {256 * 16, block_sums<256, 16, COMMUTATIVE, ONCE>},
    {256 * 16, block_sums<256, 16, WARPS, PERSISTENT>},
    {512 * 8, block_sums<512, 8, WARPS, ONCE>},
    {512 * 8, block_sums<512, 8, WARPS, PERSISTENT>},
    {128 * 32, block_sums<128, 32, WARPS, ONCE>},
    {128 * 32, block_sums<128, 32, WARPS, PERSISTENT>},
    {512 * 16, block_sums<512, 16, WARPS, ONCE>},
    {512 * 16, block_sums<512, 16, RAKING, ONCE>},
    {512 * 16, block_sums<512, 16, COMMUTATIVE, ONCE>},
    {512 * 16, block_sums<512, 16, WARPS, PERSISTENT>},
    {1024 * 8, block_sums<1024, 8, WARPS, ONCE>},
    {1024 * 8, block_sums<1024, 8, WARPS, PERSISTENT>},
    {256 * 32, block_sums<256, 32, WARPS, ONCE>},
    {256 * 32, block_sums<256, 32, WARPS, PERSISTENT>},
};

static const Way<half> kScans[] = {
    {16 * 1, warp_scans<16, 1, 256>},
    {16 * 1, warp_scans<16, 1, 512>},
    {2 * 8, warp_scans<2, 8, 128>},
    {2 * 8, warp_scans<2, 8, 256>},
    {2 * 8, warp_scans<2, 8, 512>},
    {32 * 1, warp_scans<32, 1, 256>},
    {32 * 1, warp_scans<32, 1, 512>},
    {4 * 8, warp_scans<4, 8, 128>},
    {4 * 8, warp_scans<4, 8, 256>},
    {4 * 8, warp_scans<4, 8, 512>},
    {2 * 16, warp_scans<2, 16, 256>},
    {64 * 1, block_scans<64, 1, SCAN_WARPS, VECTORS, ONCE>},
    {8 * 8, warp_scans<8, 8, 128>},
    {8 * 8, warp_scans<8, 8, 256>},
    {8 * 8, warp_scans<8, 8, 512>},
    {4 * 16, warp_scans<4, 16, 256>},
    {128 * 1, block_scans<128, 1, SCAN_WARPS, VECTORS, ONCE>},
    {16 * 8, warp_scans<16, 8, 128>},
    {16 * 8, warp_scans<16, 8, 256>},
    {16 * 8, warp_scans<16, 8, 512>},
    {8 * 16, warp_scans<8, 16, 256>},
    {256 * 1, block_scans<256, 1, SCAN_WARPS, VECTORS, ONCE>},
    {32 * 8, block_scans<32, 8, SCAN_WARPS, VECTORS, ONCE>},
    {32 * 8, warp_scans<32, 8, 128>},
    {32 * 8, warp_scans<32, 8, 256>},
    {32 * 8, warp_scans<32, 8, 512>},
    {16 * 16, warp_scans<16, 16, 256>},
    {32 * 16, block_scans<32, 16, SCAN_WARPS, VECTORS, ONCE>},
    {32 * 16, block_scans<32, 16, SCAN_RAKING, VECTORS, ONCE>},
    {32 * 16, block_scans<32, 16, SCAN_WARPS, TRANSPOSE, ONCE>},
    {32 * 16, block_scans<32, 16, SCAN_WARPS, VECTORS, PERSISTENT>},
    {64 * 8, block_scans<64, 8, SCAN_WARPS, VECTORS, ONCE>},
    {64 * 8, block_scans<64, 8, SCAN_RAKING, VECTORS, ONCE>},
    {64 * 8, block_scans<64, 8, SCAN_MEMOIZE, VECTORS, ONCE>},
    {64 * 8, block_scans<64, 8, SCAN_WARPS, VECTORS, PERSISTENT>},
    {32 * 16, warp_scans<32, 16, 128>},
    {32 * 16, warp_scans<32, 16, 256>},
    {32 * 16, warp_scans<32, 16, 512>},
    {64 * 16, block_scans<64, 16, SCAN_WARPS, VECTORS, ONCE>},
    {64 * 16, block_scans<64, 16, SCAN_RAKING, VECTORS, ONCE>},
    {64 * 16, block_scans<64, 16, SCAN_WARPS, TRANSPOSE, ONCE>},
    {64 * 16, block_scans<64, 16, SCAN_WARPS, VECTORS, PERSISTENT>},
    {128 * 8, block_scans<128, 8, SCAN_WARPS, VECTORS, ONCE>},
    {128 * 8, block_scans<128, 8, SCAN_RAKING, VECTORS, ONCE>},
    {128 * 8, block_scans<128, 8, SCAN_MEMOIZE, VECTORS, ONCE>},
    {128 * 8, block_scans<128, 8, SCAN_WARPS, VECTORS, PERSISTENT>},
    {32 * 32, block_scans<32, 32, SCAN_WARPS, TRANSPOSE, ONCE>},
    {32 * 32, warp_scans<32, 32, 128>},
    {32 * 32, warp_scans<32, 32, 256>},
    {32 * 32, warp_scans<32, 32, 512>},
    {128 * 16, block_scans<128, 16, SCAN_WARPS, VECTORS, ONCE>},
    {128 * 16, block_scans<128, 16, SCAN_RAKING, VECTORS, ONCE>},
    {128 * 16, block_scans<128, 16, SCAN_WARPS, TRANSPOSE, ONCE>},
    {128 * 16, block_scans<128, 16, SCAN_WARPS, VECTORS, PERSISTENT>},
    {256 * 8, block_scans<256, 8, SCAN_WARPS, VECTORS, ONCE>},
    {256 * 8, block_scans<256, 8, SCAN_RAKING, VECTORS, ONCE>},
    {256 * 8, block_scans<256, 8, SCAN_MEMOIZE, VECTORS, ONCE>},
    {256 * 8, block_scans<256, 8, SCAN_WARPS, VECTORS, PERSISTENT>},
    {64 * 32, block_scans<64, 32, SCAN_WARPS, TRANSPOSE, ONCE>},
    {256 * 16, block_scans<256, 16, SCAN_WARPS, VECTORS, ONCE>},
    {256 * 16, block_scans<256, 16, SCAN_RAKING, VECTORS, ONCE>},
    {256 * 16, block_scans<256, 16, SCAN_WARPS, TRANSPOSE, ONCE>},
    {256 * 16, block_scans<256, 16, SCAN_WARPS, VECTORS, PERSISTENT>},
    {512 * 8, block_scans<512, 8, SCAN_WARPS, VECTORS, ONCE>},
    {512 * 8, block_scans<512, 8, SCAN_RAKING, VECTORS, ONCE>},
    {512 * 8, block_scans<512, 8, SCAN_MEMOIZE, VECTORS, ONCE>},
    {512 * 8, block_scans<512, 8, SCAN_WARPS, VECTORS, PERSISTENT>},
    {128 * 32, block_scans<128, 32, SCAN_WARPS, TRANSPOSE, ONCE>},
    {512 * 16, block_scans<512, 16, SCAN_WARPS, VECTORS, ONCE>},
    {512 * 16, block_scans<512, 16, SCAN_RAKING, VECTORS, ONCE>},
    {512 * 16, block_scans<512, 16, SCAN_WARPS, TRANSPOSE, ONCE>},
    {512 * 16, block_scans<512, 16, SCAN_WARPS, VECTORS, PERSISTENT>},
    {1024 * 8, block_scans<1024, 8, SCAN_WARPS, VECTORS, ONCE>},
    {1024 * 8, block_scans<1024, 8, SCAN_RAKING, VECTORS, ONCE>},
    {1024 * 8, block_scans<1024, 8, SCAN_MEMOIZE, VECTORS, ONCE>},
    {1024 * 8, block_scans<1024, 8, SCAN_WARPS, VECTORS, PERSISTENT>},
    {256 * 32, block_scans<256, 32, SCAN_WARPS, TRANSPOSE, ONCE>},
};

// Launch a segment size's configuration number `way`.
template <class Out, size_t Rows>
static int run(const Way<Out> (&ways)[Rows], void* temp, size_t* bytes, const half* in, Out* out,
               long long segments, long long size, long long way) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    for (const Way<Out>& one : ways) {
        if (one.size == size && way-- == 0) return one.launch(in, out, segments);
    }
    return cudaErrorInvalidValue;
}

extern "C" int block_sum_f32(void* temp, size_t* bytes, const half* in, float* out,
                             long long segments, long long size, long long way) {
    return run(kSums, temp, bytes, in, out, segments, size, way);
}

extern "C" int block_scan_f16(void* temp, size_t* bytes, const half* in, half* out,
                              long long segments, long long size, long long way) {
    return run(kScans, temp, bytes, in, out, segments, size, way);
}
