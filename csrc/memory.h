// Memory for the length of one call, aligned for any vector.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace torchcaps {

template <class T>
struct Memory {
  explicit Memory(int64_t count) {
    values = static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64));
    if (!values) throw std::bad_alloc();
  }
  ~Memory() { std::free(values); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* values;
};

}  // namespace torchcaps
