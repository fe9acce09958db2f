// Memory for the duration of one call. One layout function both measures and carves it, so that the two cannot differ.
#pragma once

#include <cstddef>
#include <cstdint>
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
  ~Workspace() { ::operator delete(memory_, kAligned); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Calls layout(carver) twice: the first call measures, the second one assigns the buffers.
  template <class Layout>
  void allocate(Layout layout) {
    Carver measure;
    layout(measure);
    // The aligned operator of C++17, which every platform has; it throws std::bad_alloc.
    memory_ = ::operator new(size_t(measure.used() + Carver::kAlignment), kAligned);
    Carver carve(memory_);
    layout(carve);
  }

 private:
  static constexpr std::align_val_t kAligned{size_t(Carver::kAlignment)};

  void* memory_ = nullptr;
};

}  // namespace torchcaps
