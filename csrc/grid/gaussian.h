// Routing with one Gaussian per parent, EM and variational Bayes, over a grid or in a dense layer, as one table of
// kernels per instruction set; derived in src/torchcaps/ops/em/README.md and src/torchcaps/ops/variational/README.md.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace torchcaps {

// What a parent becomes from the sums over its children.
enum class Model : int64_t { kEm, kVariational };

template <class T>
struct GaussianProblem {
  Grid<T> grid;
  const T *beta_u, *beta_a;  // [J]
  const T* background;       // [1]: the logit of belonging to no parent, or null
  // EM: added to variances and to the mass of a parent. Variational: the prior's scatter and strength.
  T variance_floor, mass_floor;
  T momentum;             // EM: the part of the previous mean that stays
  T concentration;        // Variational: alpha of the prior
  const T* inverse_temp;  // EM: [R]
  const T* sharpness;     // EM: [R], the factor on the log density in the E-step after an iteration
  int64_t iters;

  // Vectors in a record of a parent: two per entry of the pose and one for the parent itself.
  int64_t record() const { return 2 * grid.out_dim() + 1; }
  // Vectors that are saved of a parent and iteration.
  int64_t saved() const { return 2 * grid.out_dim() + 3; }
};

// All state of a group is made of records [positions * J][2 D + 1] of vectors, which mean:
//   gaussian       mean, half of the precision, base: the logit of a vote is base - sum_h half_h (v_h - mean_h)^2
//   moments        weighted sums over the children of d, d^2 and 1, where d is the distance to a mean
//   share gradient mean, variance, constant: constant + sum_h (mean_h d_h + variance_h d_h^2)
template <class T>
struct GaussianKernels {
  int lanes;
  // Moments of the first iteration, with uniform coupling: of first order about zero, and of second order about a mean.
  void (*accumulate_first)(const GaussianProblem<T>&, const CellBlock&, T* moments, void* scratch);
  void (*accumulate_second)(const GaussianProblem<T>&, const CellBlock&, const T* gaussian, T* moments, void* scratch);
  // An E-step and the moments of the M-step that follows, about the previous mean.
  void (*accumulate_moments)(const GaussianProblem<T>&, const CellBlock&, const T* gaussian, T* moments, void* scratch);
  // Moments about the previous mean with the gradients of the logits in place of the shares.
  void (*accumulate_logit_gradients)(const GaussianProblem<T>&, const CellBlock&, const T* gaussian, const T* now,
                                     const T* share_gradient, T* moments, void* scratch);
  // The gradients of the children and weights of cells [first, last) for all groups. `gaussian` and `share_gradient`
  // hold [R][positions * J] records per group. The gradient of the background is added to a vector.
  void (*backward_votes)(const GaussianProblem<T>&, int64_t first, int64_t last, const T* gaussian,
                         const T* share_gradient, const GridGradients<T>& to, T* grad_background, void* scratch);
  // The first mean from its moments, in the record of the gaussian.
  void (*first_mean)(const GaussianProblem<T>&, int64_t position, const T* moments, T* gaussian);
  // The M-step of all parents at a position: `saved` of this iteration and the gaussian for the next E-step.
  void (*update[2])(const GaussianProblem<T>&, int64_t iteration, int64_t position, const T* moments, T* saved,
                    T* gaussian);
  // The gaussian of a position again, from what was saved.
  void (*restore[2])(const GaussianProblem<T>&, int64_t iteration, int64_t position, const T* saved, T* gaussian);
  // Backward through the M-step of a position: from the gradients of its results (poses and activations, in the last
  // iteration) or of the E-step after it (`moments` and `later`) to those of its shares and betas [2][J].
  void (*update_backward[2])(const GaussianProblem<T>&, int64_t iteration, int64_t position, const T* saved,
                             const T* gaussian, const T* moments, const T* later, T* share_gradient, T* grad_betas);
  // Between [B, positions, J, D], [B, positions, J] and the state of the last iteration.
  void (*store)(const GaussianProblem<T>&, int64_t group, const T* saved, T* poses, T* activations);
  void (*load_gradients)(const GaussianProblem<T>&, int64_t group, const T* grad_poses, const T* grad_activations,
                         T* share_gradient);
  // out = sum of `count` records of all parents, `stride` apart.
  void (*reduce)(const GaussianProblem<T>&, const T* partials, int64_t count, int64_t stride, T* out);
  int64_t (*scratch_bytes)(const GaussianProblem<T>&);
};

template <class T>
struct GaussianTables {
  static const GaussianKernels<T>* portable();
  static const GaussianKernels<T>* avx2();
  static const GaussianKernels<T>* avx512();
};

}  // namespace torchcaps
