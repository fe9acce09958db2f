// Memory for the duration of one call. One layout function both measures and carves it, so that the two cannot differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace torchcaps {

// Hands out consecutive buffers, each aligned for any vector. Without memory it only counts.
//
// Forced inlining: the files of all instruction sets use it, and a shared out-of-line copy could contain instructions
// that the CPU lacks.
class Carver {
 public:
  static constexpr int64_t kAlignment = 64;

  __attribute__((always_inline)) explicit Carver(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  template <class T>
  __attribute__((always_inline)) T* take(int64_t count) {
    T* const buffer = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * int64_t(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return buffer;
  }

  __attribute__((always_inline)) int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

class Workspace {
 public:
  Workspace() = default;
  ~Workspace() { std::free(memory_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Calls layout(carver) twice: the first call measures, the second one assigns the buffers.
  template <class Layout>
  void allocate(Layout layout) {
    Carver measure;
    layout(measure);
    memory_ = std::aligned_alloc(Carver::kAlignment, measure.used() + Carver::kAlignment);
    if (!memory_) throw std::bad_alloc();
    Carver carve(memory_);
    layout(carve);
  }

 private:
  void* memory_ = nullptr;
};

}  // namespace torchcaps
