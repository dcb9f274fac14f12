// The peer CUTLASS of the benchmark: products of square matrices that are stored by rows, by its
// persistent warp-specialized kernels for compute capability 9.0. A shared library with a plain C
// interface, as cub.cu has it.
//
// kHalf and kMixed list the configurations, a row each; cutlass.py reads the rows.
#include <cutlass/cutlass.h>

#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using cute::_1;
using Half = cutlass::half_t;
using Row = cutlass::layout::RowMajor;

// How the consumer warp groups of a block share its tiles.
using COOPERATIVE = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
using PINGPONG = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
template <class Schedule>
using EpilogueOf =
    std::conditional_t<std::is_same_v<Schedule, COOPERATIVE>,
                       cutlass::epilogue::TmaWarpSpecializedCooperative,
                       cutlass::epilogue::TmaWarpSpecialized>;

// M, N and K of a block's tile, and the blocks of a cluster along M. Out: of sums and results.
template <class Out, int M, int N, int K, int Cluster, class Schedule>
struct Product {
    using Tile = cute::Shape<cute::Int<M>, cute::Int<N>, cute::Int<K>>;
    using Clusters = cute::Shape<cute::Int<Cluster>, _1, _1>;
    static constexpr int kAlign = 16 / sizeof(Half), kAlignOut = 16 / sizeof(Out);
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Clusters,
        cutlass::epilogue::collective::EpilogueTileAuto, Out, Out, void, Row, kAlignOut, Out, Row,
        kAlignOut, EpilogueOf<Schedule>>::CollectiveOp;
    using Main = typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, Row, kAlign, Half, Row, kAlign,
        Out, Tile, Clusters,
        cutlass::gemm::collective::StageCountAutoCarveout<
            static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
        Schedule>::CollectiveOp;
    using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main,
                                                        Epilogue>;
    using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

    static int run(void* temp, size_t* bytes, const Half* a, const Half* b, Out* out,
                   long long size) {
        const int n = static_cast<int>(size);
        typename Gemm::Arguments arguments{
            cutlass::gemm::GemmUniversalMode::kGemm,
            {n, n, n, 1},
            {a, {size, {}, {}}, b, {{}, size, {}}},
            {{Out(1.0f), Out(0.0f)}, nullptr, {}, out, {size, {}, {}}}};
        if (temp == nullptr) {
            *bytes = Gemm::get_workspace_size(arguments) + 1;
            return static_cast<int>(Gemm::can_implement(arguments));
        }
        Gemm gemm;
        return static_cast<int>(gemm(arguments, temp));
    }
};

template <class Out>
using Way = int (*)(void*, size_t*, const Half*, const Half*, Out*, long long);

static const Way<Half> kHalf[] = {
    Product<Half, 128, 256, 64, 2, COOPERATIVE>::run,
    Product<Half, 256, 128, 64, 2, COOPERATIVE>::run,
    Product<Half, 128, 128, 64, 2, PINGPONG>::run,
    Product<Half, 64, 128, 64, 1, PINGPONG>::run,
};

static const Way<float> kMixed[] = {
    Product<float, 128, 256, 64, 2, COOPERATIVE>::run,
    Product<float, 256, 128, 64, 2, COOPERATIVE>::run,
    Product<float, 128, 128, 64, 2, PINGPONG>::run,
    Product<float, 64, 128, 64, 1, PINGPONG>::run,
};

// With temp == nullptr, set *bytes to the temporary memory that configuration number `way` needs;
// otherwise multiply. Return cutlass::Status, 0 for success.
extern "C" int product_f16(void* temp, size_t* bytes, const Half* a, const Half* b, Half* out,
                           long long size, long long way) {
    return kHalf[way](temp, bytes, a, b, out, size);
}

extern "C" int product_f32(void* temp, size_t* bytes, const Half* a, const Half* b, float* out,
                           long long size, long long way) {
    return kMixed[way](temp, bytes, a, b, out, size);
}
