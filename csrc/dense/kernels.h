// The kernels of dense layers, as one table per instruction set. The derivations are in the README.md of
// src/torchcaps/ops/dynamic, _attention_pass and self_routing.
#pragma once

#include <cstdint>

namespace torchcaps {

// The votes of a dense layer, vote_ij = poses_i weight_ij, which are recomputed and never stored. Axes: B batch,
// I children, J parents, P and D their pose sizes.
//
// Samples are processed in groups of `lanes`, one sample per vector lane. The values of all parents of one group,
// [J*D][lanes], are called a tile.
template <class T>
struct Votes {
  const T* poses;   // [B, I, P]
  const T* weight;  // [I, J, P, D], or [J, P, D]
  int64_t batch, children, parents, in_dim, out_dim;
  int64_t weight_stride;  // between the weights of consecutive children; 0 for a weight that all children share

  int64_t tile() const { return parents * out_dim; }
};

// The children [first, last) of one group of samples.
struct Block {
  int64_t group, first, last;
};

// The three kinds of coupling, which select an instance of `accumulate`.
template <class T>
struct UniformCoupling {};  // every parent gets the whole vote; the caller scales the sum
template <class T>
struct GivenCoupling {
  const T* coupling;  // [I, J, B]
};
template <class T>
struct SoftmaxCoupling {
  const T* key;    // tile: logit_ij = vote_ij . key_j
  const T* prior;  // [I, J], added to the coupling; null for none
  bool leaky;      // one more parent with logit 0, whose votes are dropped
};

// What the gradients need of one routing iteration, for one group.
template <class T>
struct Term {
  const T* key;             // tile; null where the coupling is uniform, which only the first term may be
  const T* grad_presquash;  // tile
};

template <class T>
struct Terms {
  const Term<T>* terms;  // [groups][count]
  int count;
  bool through_coupling;  // false treats the coupling as a constant
  const T* prior;
  bool leaky;
};

// Destinations of gradients; null for those that are not needed.
template <class T>
struct Gradients {
  T* poses;     // [B, I, P]
  T* weight;    // [I, J, P, D], or [J, P, D]; the gradient is added to its contents
  T* prior;     // [I, J]; the gradient is added to its contents
  T* coupling;  // [I, J, B]
};

enum class Squash : int64_t { standard, half, exponential };

// Groups of samples whose weight gradients are summed in registers.
constexpr int kMaxGroupChunk = 8;

template <class T>
struct DenseKernels {
  int lanes;
  // total += sum over the children of a block of coupling * vote.
  void (*accumulate_uniform)(const Votes<T>&, const Block&, const UniformCoupling<T>&, T* total, T* scratch);
  void (*accumulate_given)(const Votes<T>&, const Block&, const GivenCoupling<T>&, T* total, T* scratch);
  void (*accumulate_softmax)(const Votes<T>&, const Block&, const SoftmaxCoupling<T>&, T* total, T* scratch);
  // grad_key += sum over the children of a block of (gradient of the logit) * vote.
  void (*backward_key)(const Votes<T>&, const Block&, const Term<T>&, bool leaky, T* grad_key, T* scratch);
  // Gradients of the poses, weights and priors of children [first, last), for all groups.
  void (*backward_softmax)(const Votes<T>&, int64_t first, int64_t last, const Terms<T>&, const Gradients<T>&,
                           T* scratch);
  // Gradients of the coupling, poses and weights of children [first, last), from those of the totals, [groups] tiles.
  void (*backward_given)(const Votes<T>&, int64_t first, int64_t last, const GivenCoupling<T>&, const T* grad_totals,
                         const Gradients<T>&, T* scratch);
  // sum = scale * (sum of `count` partial tiles, `stride` apart) + bias.
  void (*reduce_partials)(const Votes<T>&, const T* partials, int count, int64_t stride, T scale, const T* bias,
                          T* sum);
  void (*squash)(const Votes<T>&, Squash, const T* presquash, T* poses);
  void (*squash_backward)(const Votes<T>&, Squash, const T* presquash, const T* grad_poses, T* grad_presquash);
  // Between [B, J*D] and the tile of one group.
  void (*load_tile)(const Votes<T>&, int64_t group, const T* rows, T* tile);
  void (*store_tile)(const Votes<T>&, int64_t group, const T* tile, T* rows);
  // Bytes of scratch that a thread needs for any of the functions above, with `count` terms per group.
  int64_t (*scratch_bytes)(const Votes<T>&, int count);
};

template <class T>
struct DenseTables {
  static const DenseKernels<T>* portable();
  static const DenseKernels<T>* avx2();
  static const DenseKernels<T>* avx512();
};

}  // namespace torchcaps
