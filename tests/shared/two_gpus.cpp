// A stand-in for libcuda.so.1 with two GPUs, for the real bindings and the real engine.
//
// Memory is the computer's own, and a launch calls back. Every call checks that what it is given
// belongs together: memory, streams, functions, events and the current context. What does not is a
// complaint. Work is as late as a GPU may be: a stream does it when somebody waits, so that an order
// that is missing, or memory that is gone too early, shows in results.
//
// Environment: TWO_GPUS_SM, such as "75,90": the compute capabilities.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
typedef int Result;
typedef uint64_t Address;
enum { OK = 0, INVALID = 1, NO_DEVICE = 101, NO_CONTEXT = 201, BAD_HANDLE = 400, NOT_FOUND = 500,
       CAPTURED = 900, NOT_READY = 600 };

struct Context { int device; uint64_t id; };
struct Memory { size_t size; int device; Context* context; };
struct Stream { Context* context; std::deque<std::function<void()>> work; size_t done; bool capturing; };
struct Event { Context* context; Stream* stream; size_t until; };
struct Module { Context* context; int number, words, pointers; };
struct Function { Module* module; std::string name; };

static std::recursive_mutex guard;
static std::vector<Context*> contexts;
static std::map<Address, Memory> memories;
static std::map<Context*, Stream*> default_streams;
static std::vector<Stream*> streams;
static std::string complaints;
static int launches[2], allocations[2], next_id = 100;
static bool capture_is_global;
static bool primary_active[2];
static thread_local Context* current;
static thread_local int capture_mode;  // global, thread-local, relaxed
typedef void (*Launched)(int device, int number, unsigned blocks, const uint64_t* words);
static Launched launched;

#define LOCK std::lock_guard<std::recursive_mutex> lock(guard)
#define NEED_CONTEXT if (!current) { complain("%s without a context", __func__); return NO_CONTEXT; }

template <typename... T> static Result complain(const char* text, T... values) {
    char line[400];
    snprintf(line, sizeof line, text, values...);
    complaints += std::string(line) + "\n";
    return BAD_HANDLE;
}

static Context* primary(int device) {
    while (contexts.size() < 2) contexts.push_back(new Context{(int)contexts.size(), (uint64_t)next_id++});
    return contexts[device];
}

static int device_of(Context* context) { return context ? context->device : -1; }

static Memory* memory_at(Address address) {
    auto found = memories.upper_bound(address);
    if (found == memories.begin()) return nullptr;
    --found;
    return address < found->first + found->second.size ? &found->second : nullptr;
}

static void check(const char* who, Address address, size_t size) {
    Memory* found = memory_at(address);
    if (!found) complain("%s: %#llx is in no GPU's memory", who, (unsigned long long)address);
    else if (found->device != device_of(current))
        complain("%s: memory of GPU %d in the context of GPU %d", who, found->device, device_of(current));
    else if (size && memory_at(address + size - 1) != found) complain("%s: beyond the memory's end", who);
}

static Stream* new_stream() {
    streams.push_back(new Stream{current, {}, 0, false});
    return streams.back();
}

// The stream of a handle, null if it is a wrong one. 0, 1 and 2 are default streams of the context.
static Stream* stream_of(const char* who, Stream* handle) {
    if ((uintptr_t)handle <= 2) {
        Stream*& found = default_streams[current];
        return found ? found : found = new_stream();
    }
    if (handle->context == current) return handle;
    complain("%s: stream of GPU %d in the context of GPU %d", who, device_of(handle->context), device_of(current));
    return nullptr;
}

static void finish(Stream* stream, size_t until = SIZE_MAX) {
    while (stream->done < until && !stream->work.empty()) {
        auto first = stream->work.front();
        stream->work.pop_front();
        first();
        stream->done++;
    }
}

static void finish_all() {
    for (size_t i = 0; i < streams.size(); i++) finish(streams[i]);
}

template <typename Work> static Result queue(Stream* stream, Work work) {
    if (!stream) return BAD_HANDLE;
    stream->work.push_back(work);
    return OK;
}

static bool harms_capture(const char* who) {
    if (!capture_is_global || capture_mode == 2) return false;
    complain("%s: it ends the capture of a graph", who);
    return true;
}

// --- For the tests ---------------------------------------------------------------------------

API const char* two_gpus_complaints() { return complaints.c_str(); }
API void two_gpus_reset() { LOCK; complaints.clear(); memset(launches, 0, sizeof launches); memset(allocations, 0, sizeof allocations); }
API int two_gpus_launches(int device) { return launches[device]; }
API int two_gpus_allocations(int device) { return allocations[device]; }
API void two_gpus_on_launch(Launched callback) { launched = callback; }
API void two_gpus_capture(Stream* stream, int on) { stream->capturing = capture_is_global = on; }
API Context* two_gpus_context(int device) { LOCK; primary(0); contexts.push_back(new Context{device, (uint64_t)next_id++}); return contexts.back(); }
API Address two_gpus_memory(int device, size_t size, Context* context) {
    LOCK;
    void* made = nullptr;
    if (posix_memalign(&made, 4096, size + 1)) return 0;
    memset(made, 0xab, size + 1);
    memories[(Address)made] = Memory{size + 1, device, context};
    return (Address)made;
}
API void two_gpus_release(Address address) { LOCK; finish_all(); memories.erase(address); free((void*)address); }

// --- Devices and contexts --------------------------------------------------------------------

API Result cuInit(unsigned) { return OK; }
API Result cuDriverGetVersion(int* version) { *version = 13000; return OK; }
API Result cuDeviceGetCount(int* count) { *count = 2; return OK; }
API Result cuDeviceGet(int* device, int number) { *device = number; return number < 0 || number > 1 ? NO_DEVICE : OK; }
API Result cuDeviceGetName(char* name, int size, int device) { snprintf(name, size, "Stand-in %d", device); return OK; }
API Result cuDeviceGetAttribute(int* value, int attribute, int device) {
    int sm[2] = {90, 90};
    if (const char* given = getenv("TWO_GPUS_SM")) sscanf(given, "%d,%d", sm, sm + 1);
    int own = sm[device];
    *value = attribute == 75 ? own / 10 : attribute == 76 ? own % 10
        : attribute == 97 ? (own >= 90 ? 232448 : own >= 80 ? 166912 : 65536) : 1;
    return OK;
}
API Result cuDevicePrimaryCtxRetain(Context** context, int device) { LOCK; primary_active[device] = true; *context = primary(device); return OK; }
API Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { *flags = 0; *active = primary_active[device]; return OK; }
API Result cuCtxGetCurrent(Context** context) { *context = current; return OK; }
API Result cuCtxSetCurrent(Context* context) { current = context; return OK; }
API Result cuCtxGetDevice(int* device) { NEED_CONTEXT; *device = current->device; return OK; }
API Result cuCtxGetId(Context* context, uint64_t* id) { *id = (context ? context : current)->id; return OK; }
API Result cuGetErrorString(Result error, const char** text) { static thread_local char line[40]; snprintf(line, sizeof line, "stand-in's error %d", error); *text = line; return OK; }
API Result cuPointerGetAttribute(void* target, int attribute, Address address) {
    LOCK;
    Memory* found = memory_at(address);
    if (!found) return INVALID;
    if (attribute == 1) *(Context**)target = found->context;
    else if (attribute == 2) *(unsigned*)target = 2;
    else if (attribute == 8) *(unsigned*)target = 0;
    else if (attribute == 9) *(int*)target = found->device;
    else return INVALID;
    return OK;
}
API Result cuPointerGetAttributes(unsigned count, int* attributes, void** targets, Address address) {
    for (unsigned i = 0; i < count; i++) cuPointerGetAttribute(targets[i], attributes[i], address);
    return OK;
}

// --- Memory ----------------------------------------------------------------------------------

API Result cuMemAlloc(Address* address, size_t size) {
    LOCK; NEED_CONTEXT;
    if (harms_capture(__func__)) return CAPTURED;
    *address = two_gpus_memory(current->device, size, current);
    allocations[current->device]++;
    return OK;
}
API Result cuMemFree(Address address) {
    LOCK;
    if (!memories.count(address)) return complain("cuMemFree: %#llx was not allocated", (unsigned long long)address);
    check(__func__, address, 0);
    if (harms_capture(__func__)) return CAPTURED;
    finish_all();
    memories.erase(address);
    free((void*)address);
    return OK;
}
API Result cuMemcpyDtoHAsync(void* target, Address source, size_t size, Stream* handle) {
    LOCK; NEED_CONTEXT;
    check(__func__, source, size);
    return queue(stream_of(__func__, handle), [=] { memcpy(target, (void*)source, size); });
}
API Result cuMemcpyHtoDAsync(Address target, const void* source, size_t size, Stream* handle) {
    LOCK; NEED_CONTEXT;
    check(__func__, target, size);
    return queue(stream_of(__func__, handle), [=] { memcpy((void*)target, source, size); });
}
API Result cuMemcpyDtoDAsync(Address target, Address source, size_t size, Stream* handle) {
    LOCK; NEED_CONTEXT;
    check(__func__, source, size);
    check(__func__, target, size);
    return queue(stream_of(__func__, handle), [=] { memmove((void*)target, (void*)source, size); });
}
struct Rectangle {  // CUDA_MEMCPY2D
    size_t source_x, source_y; int source_type; const void* source_host; Address source; void* source_array; size_t source_pitch;
    size_t target_x, target_y; int target_type; void* target_host; Address target; void* target_array; size_t target_pitch;
    size_t width, height;
};
API Result cuMemcpy2DAsync(const Rectangle* given, Stream* handle) {
    Result result = OK;
    for (size_t row = 0; row < given->height && !result; row++)
        result = cuMemcpyDtoDAsync(given->target + row * given->target_pitch, given->source + row * given->source_pitch, given->width, handle);
    return result;
}
template <typename T> static Result fill(const char* who, Address target, T value, size_t count, Stream* handle) {
    LOCK; NEED_CONTEXT;
    check(who, target, count * sizeof(T));
    return queue(stream_of(who, handle), [=] { for (size_t i = 0; i < count; i++) ((T*)target)[i] = value; });
}
API Result cuMemsetD8Async(Address t, unsigned char v, size_t n, Stream* s) { return fill(__func__, t, v, n, s); }
API Result cuMemsetD16Async(Address t, unsigned short v, size_t n, Stream* s) { return fill(__func__, t, v, n, s); }
API Result cuMemsetD32Async(Address t, unsigned v, size_t n, Stream* s) { return fill(__func__, t, v, n, s); }
API Result cuMemsetD2D8Async(Address target, size_t pitch, unsigned char value, size_t width, size_t height, Stream* handle) {
    Result result = OK;
    for (size_t row = 0; row < height && !result; row++) result = fill(__func__, target + row * pitch, value, width, handle);
    return result;
}

// --- Streams and events ----------------------------------------------------------------------

API Result cuStreamCreate(Stream** stream, unsigned) { LOCK; NEED_CONTEXT; *stream = new_stream(); return OK; }
API Result cuStreamGetCtx(Stream* stream, Context** context) { *context = (uintptr_t)stream > 2 ? stream->context : current; return OK; }
API Result cuStreamSynchronize(Stream* handle) {
    LOCK; NEED_CONTEXT;
    Stream* stream = stream_of(__func__, handle);
    if (stream) finish(stream);
    return stream ? OK : BAD_HANDLE;
}
API Result cuStreamIsCapturing(Stream* handle, int* how) {
    LOCK; NEED_CONTEXT;
    Stream* stream = stream_of(__func__, handle);
    *how = stream && stream->capturing;
    return stream ? OK : BAD_HANDLE;
}
API Result cuThreadExchangeStreamCaptureMode(int* mode) { std::swap(*mode, capture_mode); return OK; }
API Result cuEventCreate(Event** event, unsigned) { LOCK; NEED_CONTEXT; *event = new Event{current, nullptr, 0}; return OK; }
API Result cuEventRecord(Event* event, Stream* handle) {
    LOCK; NEED_CONTEXT;
    Stream* stream = stream_of(__func__, handle);
    if (event->context != current)
        return complain("%s: event of GPU %d in the context of GPU %d", __func__, device_of(event->context), device_of(current));
    if (!stream) return BAD_HANDLE;
    event->stream = stream;
    event->until = stream->done + stream->work.size();
    return OK;
}
API Result cuStreamWaitEvent(Stream* handle, Event* event, unsigned) {
    LOCK; NEED_CONTEXT;
    Stream* other = event->stream;
    size_t until = event->until;
    return queue(stream_of(__func__, handle), [=] { finish(other, until); });
}
API Result cuEventQuery(Event* event) { LOCK; return event->stream->done < event->until ? NOT_READY : OK; }
API Result cuEventSynchronize(Event* event) { LOCK; finish(event->stream, event->until); return OK; }
API Result cuEventDestroy(Event* event) { delete event; return OK; }

// --- Kernels: a cubin is the text "number words pointers" ------------------------------------

API Result cuModuleLoadData(Module** module, const char* image) {
    LOCK; NEED_CONTEXT;
    Module made{current, 0, 0, 0};
    if (sscanf(image, "%d %d %d", &made.number, &made.words, &made.pointers) != 3) return INVALID;
    *module = new Module(made);
    return OK;
}
API Result cuModuleGetFunction(Function** function, Module* module, const char* name) { *function = new Function{module, name}; return OK; }
API Result cuFuncSetAttribute(Function* function, int, int) { return function->module->context == current ? OK : complain("cuFuncSetAttribute in another context"); }
API Result cuLaunchKernel(Function* function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, Stream* handle, void** arguments, void**) {
    LOCK; NEED_CONTEXT;
    Module* module = function->module;
    if (module->context != current)
        return complain("launch of %s of GPU %d in the context of GPU %d", function->name.c_str(), device_of(module->context), device_of(current));
    const char* name = function->name.c_str();
    launches[current->device]++;
    std::vector<uint64_t> words;
    for (int i = 0; i < module->words; i++) words.push_back(*(uint64_t*)arguments[i]);
    size_t before = complaints.size();
    for (int i = 0; i < module->pointers; i++) check(name, words[i], 0);
    Stream* stream = stream_of(name, handle);
    // With a complaint there is nothing to compute: results would be anything.
    bool right = complaints.size() == before && launched;
    return queue(stream, [=] { if (right) launched(module->context->device, module->number, blocks, words.data()); });
}

// --- How the bindings find all this ----------------------------------------------------------

API Result cuGetExportTable(const void**, const void*) { return NOT_FOUND; }
API Result cuGetProcAddress_v2(const char* name, void** found, int, uint64_t, int* status) {
    Dl_info own;
    dladdr((void*)cuInit, &own);
    static void* self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    bool is_this = !strcmp(name, "cuGetProcAddress");
    *found = is_this ? (void*)cuGetProcAddress_v2 : dlsym(self, name);
    if (status) *status = *found ? 0 : 1;
    return *found ? OK : NOT_FOUND;
}
API Result cuGetProcAddress(const char* name, void** found, int version, uint64_t flags) { return cuGetProcAddress_v2(name, found, version, flags, nullptr); }
