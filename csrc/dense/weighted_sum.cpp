// Sums of votes with a given coupling, from poses and weight without stored votes; derived in
// src/torchcaps/ops/self_routing/README.md.
#include "../common/c_api.h"
#include "launch.h"

namespace torchcaps {
namespace {

struct WeightedSizes {
  int64_t batch, children, parents, in_dim, out_dim;
  // With a shared weight the poses can be summed first, which needs no kernel.
  static constexpr bool shared = false;
};

template <class T>
struct WeightedForward {
  const T *coupling, *poses, *weight;  // coupling [I, J, B]
  T* out;                              // [B, J, D]
};

template <class T>
struct WeightedBackward {
  const T *coupling, *poses, *weight, *grad_out;
  T *grad_coupling, *grad_poses, *grad_weight;  // each may be null
};

// out = sum over the children of coupling * vote.
template <class T>
void weighted_forward(const WeightedForward<T>& to, const WeightedSizes& s, int threads) {
  Launch<T> launch(make_votes(to.poses, to.weight, s), 1, 0, threads);
  const Votes<T>& q = launch.votes;
  const DenseKernels<T>& kernels = launch.kernels;
  T* sum;
  launch.allocate([&](Carver& carver) { sum = carver.take<T>(launch.tiles); });
  launch.run([&](T* scratch) {
    launch.accumulate(
        [&](const Block& block, T* total) { kernels.accumulate_given(q, block, {to.coupling}, total, scratch); });
    launch.for_each_group([&](int64_t group, int64_t at) {
      launch.reduce_partials(group, T(1), nullptr, sum + at);
      kernels.store_tile(q, group, sum + at, to.out);
    });
  });
}

// All gradients in one pass over the children.
template <class T>
void weighted_backward(const WeightedBackward<T>& to, const WeightedSizes& s, int threads) {
  Launch<T> launch(make_votes(to.poses, to.weight, s), 2, 0, threads);
  const Votes<T>& q = launch.votes;
  const DenseKernels<T>& kernels = launch.kernels;
  GradientPartition<T> partition(q, {to.grad_poses, to.grad_weight, nullptr, to.grad_coupling});
  T* grads;
  const auto layout = [&](Carver& carver) {
    grads = carver.take<T>(launch.tiles);
    partition.take(carver);
  };
  launch.allocate(layout, /*sums=*/false);
  launch.run([&](T* scratch) {
    launch.for_each_group([&](int64_t group, int64_t at) { kernels.load_tile(q, group, to.grad_out, grads + at); });
    partition.run(launch, [&](int64_t first, int64_t last, const Gradients<T>& own) {
      kernels.backward_given(q, first, last, {to.coupling}, grads, own, scratch);
    });
  });
  partition.reduce_partials();
}

}  // namespace
}  // namespace torchcaps

TORCHCAPS_ENTRY(weighted_sum_forward, weighted_forward, WeightedForward, WeightedSizes)
TORCHCAPS_ENTRY(weighted_sum_backward, weighted_backward, WeightedBackward, WeightedSizes)
