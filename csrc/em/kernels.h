// EM routing over a grid of 4x4 pose matrices, as one table of kernels per instruction set; derived in
// src/torchcaps/ops/em/README.md.
#pragma once

#include <cstdint>

#include "../grid/kernels.h"

namespace torchcaps {

// Axes: B batch, cells of the grid (H*W) with I child types each, positions of the kernel (H'*W') with J parents each.
// Parents are processed in blocks of `lanes`, one parent per vector lane; a block has [16][lanes] values per pose.
template <class T>
struct EmProblem {
  const T* poses;         // [B, cells, I, 16]
  const T* activations;   // [B, cells, I]
  const T* weight;        // [K*K*I or I][blocks][16][lanes]
  const T* beta_u;        // [blocks][lanes]
  const T* beta_a;        // [blocks][lanes]
  const T* is_parent;     // [blocks][lanes]: 1 for a parent, 0 for a lane without one
  const T* offsets;       // [K*K, 2], or null
  const T* inverse_temp;  // [R]
  const T* sharpness;     // [R]: the factor on the log density in the E-step after an iteration
  const T* background;    // [1]: the logit of belonging to no parent, or null
  const Edge* edges;
  const int64_t* first;          // [cells + 1]: the edges of cell n are first[n] to first[n + 1]
  T variance_floor, mass_floor;  // added to variances, and to the mass of a parent
  T momentum;                    // the part of the previous mean that stays
  int64_t batch, cells, types, positions, parents, blocks, iters, max_edges;
  Competition competition;
  bool shared, start_types;  // one weight for all cells of the kernel; a first coupling of 1/J
};

// The gradients of one sample. Those of the weight and the betas are added to their contents, in the packed layout:
// [blocks][lanes] for beta_u, the same for beta_a, and [lanes] to be summed for the background.
template <class T>
struct EmGradients {
  T *poses, *activations, *weight, *betas;
};

template <class T>
struct EmKernels {
  int lanes;
  // From the children of one sample to its parents; `saved` receives what the gradients need of each iteration.
  void (*forward)(const EmProblem<T>&, int64_t sample, T* poses, T* activations, T* saved, void* scratch);
  void (*backward)(const EmProblem<T>&, int64_t sample, const T* saved, const T* grad_poses, const T* grad_activations,
                   const EmGradients<T>& to, void* scratch);
  // Numbers of values in `saved` per sample, and of bytes in `scratch` per thread.
  int64_t (*saved_size)(const EmProblem<T>&);
  int64_t (*scratch_bytes)(const EmProblem<T>&, bool backward);
};

template <class T>
struct EmTables {
  static const EmKernels<T>* portable();
  static const EmKernels<T>* avx2();
  static const EmKernels<T>* avx512();
};

}  // namespace torchcaps
