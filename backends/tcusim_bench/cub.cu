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

// Segments of one size, by offsets: the only way that there was when the paper was written.
extern "C" int offsets_sum_f32(void* temp, size_t* bytes, const half* in, float* out,
                               long long segments, long long size) {
    auto starts = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0),
                                                  StartOf{size});
    return cub::DeviceSegmentedReduce::Reduce(temp, bytes[0], in, out, segments, starts, starts + 1,
                                              PlusF32{}, 0.0f);
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

// A whole array of float32.
extern "C" int whole_sum_f32(void* temp, size_t* bytes, const float* in, float* out,
                             long long segments, long long size) {
    return cub::DeviceReduce::Sum(temp, *bytes, in, out, segments * size);
}

extern "C" int whole_scan_f32(void* temp, size_t* bytes, const float* in, float* out,
                              long long segments, long long size) {
    return cub::DeviceScan::InclusiveSum(temp, *bytes, in, out, segments * size);
}

#if CCCL_VERSION >= 3004000
// With the same bits in every run. It takes temporary memory itself, in the stream's order.
extern "C" int run_to_run_scan_f32(void* temp, size_t* bytes, const float* in, float* out,
                                   long long segments, long long size) {
    *bytes = 1;
    if (temp == nullptr) return cudaSuccess;
    const auto env = ::cuda::execution::require(::cuda::execution::determinism::run_to_run);
    return cub::DeviceScan::InclusiveSum(in, out, segments * size, env);
}
#endif

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
