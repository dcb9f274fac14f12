// Calls a kernel of any signature with the arguments that are at these addresses.
#pragma once
#include "host_runtime.h"

namespace tcusim {

template <int... I>
struct Numbers {};
template <int N, int... I>
struct CountTo : CountTo<N - 1, N - 1, I...> {};
template <int... I>
struct CountTo<0, I...> {
    using type = Numbers<I...>;
};

template <class... P, int... I>
inline void call_numbered(void (*kernel)(P...), void** arguments, Numbers<I...>) {
    kernel(*static_cast<P*>(arguments[I])...);
}

template <int COUNT, class... P>
inline void call(void (*kernel)(P...), void** arguments) {
    static_assert(sizeof...(P) == COUNT, "the kernel's parameters are not Kernel.arguments");
    call_numbered(kernel, arguments, typename CountTo<COUNT>::type());
}

}  // namespace tcusim

// Before the function that calls a kernel, in the lane that runs: it can be found by its name.
#define TCUSIM_ENTRY extern "C" __attribute__((visibility("default")))
