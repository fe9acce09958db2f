// One pass of softmax attention over the votes of a grid, as one table of kernels per instruction set; derived in
// src/torchcaps/ops/_attention_pass/README.md.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace torchcaps {

// total_j = sum over the children of share * vote, where the coupling is the softmax over the rivals of
//   logit = vote . key_j + base + pose . route
// with those terms that there are, and uniform without any. The share is the coupling plus the prior; or, `weighted`,
// the coupling times the activation of the child, and mass_j is the sum of the shares. Otherwise the activation scales
// the offsets of the votes.
template <class T>
struct GridAttention {
  Grid<T> grid;
  const T* prior;  // [K*K*I, J], or null
  const T* base;   // [K*K*I, J], or null
  const T* route;  // [K*K*I, J, P], or null
  bool leaky;      // one more rival with logit 0, whose share is dropped
  bool weighted;
  bool through;  // gradients pass through the coupling

  // Vectors in the state of a group: the entries of all parents, then their masses.
  int64_t state() const { return grid.all_parents() * (grid.out_dim() + weighted); }
  // The row of a child in the tensors of pairs of child and parent, times the number of parents.
  int64_t pairs_at(int64_t kernel, int64_t type) const { return (kernel * grid.types + type) * grid.parents; }
};

// The gradients of tensors of pairs, added to their contents; null for those that are not needed.
template <class T>
struct PairGradients {
  T *prior, *base, *route;
};

template <class T>
struct GridAttentionKernels {
  int lanes;
  // Adds the cells of a block to the state. `keys` may be null.
  void (*accumulate)(const GridAttention<T>&, const CellBlock&, const T* keys, T* total, void* scratch);
  // Adds the gradients of the keys, from those of the state.
  void (*accumulate_key_gradients)(const GridAttention<T>&, const CellBlock&, const T* keys, const T* grads, T* total,
                                   void* scratch);
  // The gradients of the children, weights and pairs of cells [first, last) for all groups.
  void (*backward)(const GridAttention<T>&, int64_t first, int64_t last, const T* keys, const T* grads,
                   const GridGradients<T>& to, const PairGradients<T>& pairs, void* scratch);
  // Between [B, columns] and `columns` vectors of a group.
  void (*load)(const GridAttention<T>&, int64_t group, int64_t columns, const T* matrix, T* vectors);
  void (*store)(const GridAttention<T>&, int64_t group, int64_t columns, const T* vectors, T* matrix);
  // out = sum of `count` states, `stride` values apart.
  void (*reduce)(const GridAttention<T>&, const T* partials, int64_t count, int64_t stride, T* out);
  int64_t (*scratch_bytes)(const GridAttention<T>&);
};

template <class T>
struct GridAttentionTables {
  static const GridAttentionKernels<T>* portable();
  static const GridAttentionKernels<T>* avx2();
  static const GridAttentionKernels<T>* avx512();
};

}  // namespace torchcaps
