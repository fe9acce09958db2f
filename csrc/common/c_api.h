// The C interface that Python calls through ctypes. Every entry has the same signature, checks how many tensors and
// sizes it was given, and turns every exception into a status with a message.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#if defined(_WIN32)
#define TORCHCAPS_EXPORT extern "C" __declspec(dllexport)
#else
#define TORCHCAPS_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace torchcaps {

// Raised whenever the tensors or sizes of any entry change. ops/_native.py refuses a library with another version.
constexpr int kAbiVersion = 5;

enum Status : int { kSuccess = 0, kOutOfMemory = 1, kFailure = 2 };

struct Call {
  void* const* tensors;
  int64_t tensor_count;
  const int64_t* sizes;
  int64_t size_count;
  int64_t threads;
  char* message;
  int64_t message_size;
};

// `Tensors` is a struct of pointers and `Sizes` a struct of int64_t, both in the order in which the caller passes them.
template <class Tensors, class Sizes, class Kernel>
int invoke(const char* name, const Call& call, Kernel kernel) noexcept {
  constexpr int64_t tensor_count = sizeof(Tensors) / sizeof(void*), size_count = sizeof(Sizes) / sizeof(int64_t);
  const auto report = [&](Status status, const char* reason) {
    if (call.message && call.message_size > 0) std::snprintf(call.message, call.message_size, "%s: %s", name, reason);
    return status;
  };
  if (call.tensor_count != tensor_count || call.size_count != size_count) {
    char reason[128];
    std::snprintf(reason, sizeof(reason), "expected %d tensors and %d sizes, got %d and %d", int(tensor_count),
                  int(size_count), int(call.tensor_count), int(call.size_count));
    return report(kFailure, reason);
  }
  for (int64_t k = 0; k < size_count; ++k)
    if (call.sizes[k] < 0) return report(kFailure, "expected sizes of at least 0, got a negative one");
  try {
    Tensors tensors;
    Sizes sizes;
    std::memcpy(&tensors, call.tensors, sizeof(Tensors));
    std::memcpy(&sizes, call.sizes, sizeof(Sizes));
    kernel(tensors, sizes, int(call.threads));
    return kSuccess;
  } catch (const std::bad_alloc&) {
    return report(kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return report(kFailure, error.what());
  } catch (...) {
    return report(kFailure, "unknown exception");
  }
}

}  // namespace torchcaps

// Defines torchcaps_<NAME>_f32 and torchcaps_<NAME>_f64, which call KERNEL(Tensors<T>, Sizes, threads).
#define TORCHCAPS_ENTRY(NAME, KERNEL, TENSORS, SIZES)          \
  TORCHCAPS_ENTRY_OF(float, f32, NAME, KERNEL, TENSORS, SIZES) \
  TORCHCAPS_ENTRY_OF(double, f64, NAME, KERNEL, TENSORS, SIZES)

#define TORCHCAPS_ENTRY_OF(T, SUFFIX, NAME, KERNEL, TENSORS, SIZES)                                                  \
  TORCHCAPS_EXPORT int torchcaps_##NAME##_##SUFFIX(void* const* tensors, int64_t tensor_count, const int64_t* sizes, \
                                                   int64_t size_count, int64_t threads, char* message,               \
                                                   int64_t message_size) {                                           \
    const torchcaps::Call call{tensors, tensor_count, sizes, size_count, threads, message, message_size};            \
    return torchcaps::invoke<torchcaps::TENSORS<T>, torchcaps::SIZES>(#NAME, call, torchcaps::KERNEL<T>);            \
  }
