// What the driver (em.cpp) asks of one instruction set: see src/torchcaps/ops/em/README.md for the derivation.
#pragma once

#include <cstdint>

namespace torchcaps {

// One parent position that sees a place of the grid, and through which place of the kernel.
struct Edge {
  int32_t position, kernel;
};

// Axes: B batch, places of the grid (H*W) with I types each, positions of the kernel (H'*W') with J parents each. Parents go
// in blocks of `lanes`, one parent per vector lane; what a block has per pose entry is [16][lanes].
template <class T>
struct EmProblem {
  const T* poses;        // [B, places, I, 16]
  const T* activations;  // [B, places, I]
  const T* weight;       // [K*K*I or I][blocks][16][lanes]
  const T* beta_u;       // [blocks][lanes]
  const T* beta_a;       // [blocks][lanes]
  const T* real;         // [blocks][lanes]: 1 for a parent, 0 where a block has none
  const T* offsets;      // [K*K, 2], or null
  const T* inverse;      // [R], the inverse temperatures
  const Edge* edges;
  const int64_t* first;  // [places + 1]: the edges of place n are first[n] to first[n + 1]
  T floor, mass;         // added to variances, and to the sum of the shares
  int64_t batch, places, types, positions, parents, blocks, iters, most_edges;
  bool shared, local;
};

template <class T>
struct EmStages {
  int lanes;
  // From one sample's children to its parents; `kept` is what the gradients need of each iteration.
  void (*forward)(const EmProblem<T>&, int64_t sample, T* poses, T* activations, T* kept, T* scratch);
  // Gradients of one sample's children; the weight's and the betas' are added to what is there, in the packed layout.
  void (*backward)(const EmProblem<T>&, int64_t sample, const T* kept, const T* grad_poses, const T* grad_activations,
                   T* grad_child_poses, T* grad_child_activations, T* grad_weight, T* grad_betas, T* scratch);
  int64_t (*kept)(const EmProblem<T>&);
  int64_t (*scratch)(const EmProblem<T>&, bool backward);
};

template <class T>
struct EmIsa {
  static const EmStages<T>* portable();
  static const EmStages<T>* avx2();
  static const EmStages<T>* avx512();
};

}  // namespace torchcaps
