// The fragments of the mma.sync shapes: on the host they are WMMA's, which take any shape.
#pragma once
#include "mma.h"

namespace tcu {

using nvcuda::wmma::fill_fragment;
using nvcuda::wmma::fragment;
using nvcuda::wmma::load_matrix_sync;
using nvcuda::wmma::mma_sync;
using nvcuda::wmma::store_matrix_sync;

}  // namespace tcu
