// One pass of Kuramoto routing over the votes of a grid, as one table of kernels per instruction set; derived in
// src/torchcaps/ops/kuramoto/README.md.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace torchcaps {

// The children of iteration r have turned r times, towards the phases x_0 to x_(r-1) of their parents. A turned phase
// is a combination of the vote and of these, so that a pass needs of each vote its length and its products with them.
//
// Keys, per position and parent: the phases [r][D], then their products with each other [r][r].
// Sums, per position and parent: of c a v [D], where the turned phase is a v / |v| + sum_k a_k x_k, of c |v| a_k [r],
// and of c |v|.
template <class T>
struct KuramotoProblem {
  Grid<T> grid;
  int64_t turns;
  T gain, step;

  int64_t key_columns() const { return turns * (grid.out_dim() + turns); }
  int64_t sum_columns() const { return grid.out_dim() + turns + 1; }
};

template <class T>
struct KuramotoKernels {
  int lanes;
  // Adds the cells of a block to the sums. `keys` is null without turns.
  void (*accumulate)(const KuramotoProblem<T>&, const CellBlock&, const T* keys, T* sums, void* scratch);
  // Adds the gradients of the keys, from those of the sums.
  void (*accumulate_key_gradients)(const KuramotoProblem<T>&, const CellBlock&, const T* keys, const T* grads,
                                   T* grad_keys, void* scratch);
  // The gradients of the children and weights of cells [first, last) for all groups.
  void (*backward)(const KuramotoProblem<T>&, int64_t first, int64_t last, const T* keys, const T* grads,
                   const GridGradients<T>& to, void* scratch);
  // Between [B, columns] and `columns` vectors of a group.
  void (*load)(const KuramotoProblem<T>&, int64_t group, int64_t columns, const T* matrix, T* vectors);
  void (*store)(const KuramotoProblem<T>&, int64_t group, int64_t columns, const T* vectors, T* matrix);
  // out = sum of `count` states of `columns` vectors, `stride` values apart.
  void (*reduce)(int64_t columns, const T* partials, int64_t count, int64_t stride, T* out);
  int64_t (*scratch_bytes)(const KuramotoProblem<T>&);
};

template <class T>
struct KuramotoTables {
  static const KuramotoKernels<T>* portable();
  static const KuramotoKernels<T>* avx2();
  static const KuramotoKernels<T>* avx512();
};

}  // namespace torchcaps
