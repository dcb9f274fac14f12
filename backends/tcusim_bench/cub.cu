// The peers "CUB" and "Thrust" of the benchmark, as a shared library with a plain C interface.
//
// Every function follows CUB's own two calls: with temp == nullptr it sets *bytes to the temporary
// memory that it needs, otherwise it runs on the default stream. It returns the cudaError_t.
#include <cub/cub.cuh>
#include <cuda_fp16.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>

using std::size_t;
using PlusF32 = ::cuda::std::plus<float>;
using PlusF16 = ::cuda::std::plus<half>;

// The number of an element's segment.
struct SegmentOf {
    long long size;
    __host__ __device__ long long operator()(long long element) const { return element / size; }
};

// The first element of a segment.
struct StartOf {
    long long size;
    __host__ __device__ long long operator()(long long segment) const { return segment * size; }
};

// One segment: CUB's device-wide sum. Several: its segmented one.
template <class Op, class Out, class Sum>
static int segmented_sum(void* temp, size_t* bytes, const half* in, Out* out, long long segments,
                         long long size, Op op, Sum zero) {
    if (segments == 1) {
        return cub::DeviceReduce::Reduce(temp, *bytes, in, out, size, op, zero);
    }
#if CCCL_VERSION >= 3001000
    return cub::DeviceSegmentedReduce::Reduce(temp, *bytes, in, out, segments,
                                              static_cast<int>(size), op, zero);
#else
    // Before CCCL 3.1 there is no fixed segment size: segments are given by offsets.
    auto starts = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0),
                                                  StartOf{size});
    return cub::DeviceSegmentedReduce::Reduce(temp, *bytes, in, out, segments, starts, starts + 1,
                                              op, zero);
#endif
}

extern "C" int sum_f32(void* temp, size_t* bytes, const half* in, float* out, long long segments,
                       long long size) {
    return segmented_sum(temp, bytes, in, out, segments, size, PlusF32{}, 0.0f);
}

extern "C" int sum_f16(void* temp, size_t* bytes, const half* in, half* out, long long segments,
                       long long size) {
    return segmented_sum(temp, bytes, in, out, segments, size, PlusF16{}, half(0.0f));
}

// One segment: CUB's device-wide scan. Several: its scan by key, the key being the segment.
template <class Out>
static int segmented_scan(void* temp, size_t* bytes, const half* in, Out* out, long long segments,
                          long long size) {
    if (segments == 1) {
        return cub::DeviceScan::InclusiveScan(temp, *bytes, in, out, PlusF32{}, size);
    }
    auto keys = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0),
                                                SegmentOf{size});
    return cub::DeviceScan::InclusiveScanByKey(temp, *bytes, keys, in, out, PlusF32{},
                                               segments * size);
}

extern "C" int scan_f16(void* temp, size_t* bytes, const half* in, half* out, long long segments,
                        long long size) {
    return segmented_scan(temp, bytes, in, out, segments, size);
}

extern "C" int scan_f32(void* temp, size_t* bytes, const half* in, float* out, long long segments,
                        long long size) {
    return segmented_scan(temp, bytes, in, out, segments, size);
}

// The whole array with sums in f16, as cub::DeviceScan::InclusiveSum has them by itself.
extern "C" int inclusive_sum_f16(void* temp, size_t* bytes, const half* in, half* out,
                                 long long segments, long long size) {
    return cub::DeviceScan::InclusiveSum(temp, *bytes, in, out, segments * size);
}

// Segments by offsets, of which there is one more than there are segments.
extern "C" int ragged_sum_f32(void* temp, size_t* bytes, const half* in, float* out,
                              const long long* offsets, long long segments) {
    return cub::DeviceSegmentedReduce::Reduce(temp, *bytes, in, out, segments, offsets, offsets + 1,
                                              PlusF32{}, 0.0f);
}

// Scans of segments whose numbers are the elements' keys.
extern "C" int ragged_scan_f16(void* temp, size_t* bytes, const half* in, half* out,
                               const int* keys, long long size) {
    return cub::DeviceScan::InclusiveScanByKey(temp, *bytes, keys, in, out, PlusF32{}, size);
}

// --- A warp or a block for each segment ----------------------------------------------------------

static constexpr int kThreads = 256;

template <int Size>
__global__ void warp_sum(const half* in, float* out, long long segments) {
    using Reduce = cub::WarpReduce<float, Size>;
    __shared__ typename Reduce::TempStorage temp[kThreads / Size];
    const int group = threadIdx.x / Size, lane = threadIdx.x % Size;
    const long long segment = blockIdx.x * static_cast<long long>(kThreads / Size) + group;
    const float value = segment < segments ? __half2float(in[segment * Size + lane]) : 0.0f;
    const float sum = Reduce(temp[group]).Sum(value);
    if (lane == 0 && segment < segments) out[segment] = sum;
}

template <int Size>
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

static unsigned warp_blocks(long long segments, int size) {
    return static_cast<unsigned>((segments * size + kThreads - 1) / kThreads);
}

// The threads and items of each size are those that the paper's authors chose for CUB's blocks.
#define FOR_BLOCKS(CASE) \
    CASE(64, 64, 1) CASE(128, 128, 1) CASE(256, 256, 1) CASE(512, 32, 16) CASE(1024, 64, 16) \
    CASE(2048, 128, 16) CASE(4096, 256, 16) CASE(8192, 512, 16)

extern "C" int block_sum_f32(void* temp, size_t* bytes, const half* in, float* out,
                             long long segments, long long size) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    switch (size) {
    case 16: warp_sum<16><<<warp_blocks(segments, 16), kThreads>>>(in, out, segments); break;
    case 32: warp_sum<32><<<warp_blocks(segments, 32), kThreads>>>(in, out, segments); break;
#define CASE(SIZE, THREADS, ITEMS) \
    case SIZE: block_sum<THREADS, ITEMS><<<segments, THREADS>>>(in, out); break;
    FOR_BLOCKS(CASE)
#undef CASE
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

extern "C" int block_scan_f16(void* temp, size_t* bytes, const half* in, half* out,
                              long long segments, long long size) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    switch (size) {
    case 16: warp_scan<16><<<warp_blocks(segments, 16), kThreads>>>(in, out, segments); break;
    case 32: warp_scan<32><<<warp_blocks(segments, 32), kThreads>>>(in, out, segments); break;
#define CASE(SIZE, THREADS, ITEMS) \
    case SIZE: block_scan<THREADS, ITEMS><<<segments, THREADS>>>(in, out); break;
    FOR_BLOCKS(CASE)
#undef CASE
    default: return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}

// --- Thrust, which takes temporary memory itself -------------------------------------------------

// Thrust adds in the type of what it reads.
struct ToF32 {
    __host__ __device__ float operator()(half value) const { return __half2float(value); }
};

static auto keys_of(long long size) {
    return thrust::make_transform_iterator(thrust::counting_iterator<long long>(0),
                                           SegmentOf{size});
}

extern "C" int thrust_sum_f32(void* temp, size_t* bytes, const half* in, float* out,
                              long long segments, long long size) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    const auto values = thrust::make_transform_iterator(in, ToF32{});
    if (segments == 1) {
        const float sum = thrust::reduce(thrust::device, values, values + size, 0.0f, PlusF32{});
        return cudaMemcpy(out, &sum, sizeof sum, cudaMemcpyHostToDevice);
    }
    const auto keys = keys_of(size);
    thrust::reduce_by_key(thrust::device, keys, keys + segments * size, values,
                          thrust::make_discard_iterator(), out,
                          ::cuda::std::equal_to<long long>{}, PlusF32{});
    return cudaGetLastError();
}

extern "C" int thrust_scan_f16(void* temp, size_t* bytes, const half* in, half* out,
                               long long segments, long long size) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    const auto values = thrust::make_transform_iterator(in, ToF32{});
    if (segments == 1) {
        thrust::inclusive_scan(thrust::device, values, values + size, out, PlusF32{});
    } else {
        const auto keys = keys_of(size);
        thrust::inclusive_scan_by_key(thrust::device, keys, keys + segments * size, values, out,
                                      ::cuda::std::equal_to<long long>{}, PlusF32{});
    }
    return cudaGetLastError();
}
