// One pass of softmax attention over the votes, from poses and weight without stored votes; derived in
// src/torchcaps/ops/_attention_pass/README.md.
#include "../common/c_api.h"
#include "launch.h"

namespace torchcaps {
namespace {

struct AttentionSizes {
  int64_t batch, children, parents, in_dim, out_dim, shared;
};

template <class T>
struct AttentionForward {
  const T *poses, *weight, *key, *prior;  // key [B, J, D] and prior [I, J] may be null
  T* out;                                 // [B, J, D]
};

template <class T>
struct AttentionBackward {
  const T *poses, *weight, *key, *prior, *grad_out;
  T *grad_poses, *grad_weight, *grad_key, *grad_prior;  // each may be null
};

// out = sum over the children of (coupling + prior) * vote. Without a key the coupling is uniform.
template <class T>
void attention_forward(const AttentionForward<T>& to, const AttentionSizes& s, int threads) {
  Launch<T> launch(make_votes(to.poses, to.weight, s), 1, 0, threads);
  const Votes<T>& q = launch.votes;
  const DenseKernels<T>& kernels = launch.kernels;
  T *keys, *sum;
  launch.allocate([&](Carver& carver) {
    keys = carver.take<T>(launch.tiles);
    sum = carver.take<T>(launch.tiles);
  });
  launch.run([&](T* scratch) {
    if (to.key)
      launch.for_each_group([&](int64_t group, int64_t at) { kernels.load_tile(q, group, to.key, keys + at); });
    launch.accumulate([&](const Block& block, T* total) {
      if (to.key)
        kernels.accumulate_softmax(q, block, {keys + block.group * launch.tile, to.prior, false}, total, scratch);
      else
        kernels.accumulate_uniform(q, block, {}, total, scratch);
    });
    launch.for_each_group([&](int64_t group, int64_t at) {
      launch.reduce_partials(group, to.key ? T(1) : T(1) / T(s.parents), nullptr, sum + at);
      kernels.store_tile(q, group, sum + at, to.out);
    });
  });
}

template <class T>
void attention_backward(const AttentionBackward<T>& to, const AttentionSizes& s, int threads) {
  Launch<T> launch(make_votes(to.poses, to.weight, s), 2, 1, threads);
  const Votes<T>& q = launch.votes;
  const DenseKernels<T>& kernels = launch.kernels;
  GradientPartition<T> partition(q, {to.grad_poses, to.grad_weight, to.grad_prior, nullptr});
  T *keys, *grads, *sum;
  Term<T>* terms;  // [groups]
  launch.allocate([&](Carver& carver) {
    keys = carver.take<T>(launch.tiles);
    grads = carver.take<T>(launch.tiles);
    sum = carver.take<T>(launch.tiles);
    terms = carver.take<Term<T>>(launch.plan.groups);
    partition.take(carver);
  });
  launch.run([&](T* scratch) {
    launch.for_each_group([&](int64_t group, int64_t at) {
      if (to.key) kernels.load_tile(q, group, to.key, keys + at);
      kernels.load_tile(q, group, to.grad_out, grads + at);
      terms[group] = {to.key ? keys + at : nullptr, grads + at};
    });
    if (to.grad_key) {
      launch.accumulate([&](const Block& block, T* total) {
        kernels.backward_key(q, block, terms[block.group], false, total, scratch);
      });
      launch.for_each_group([&](int64_t group, int64_t at) {
        launch.reduce_partials(group, T(1), nullptr, sum + at);
        kernels.store_tile(q, group, sum + at, to.grad_key);
      });
    }
    if (to.grad_poses || to.grad_weight || to.grad_prior)
      partition.run(launch, [&](int64_t first, int64_t last, const Gradients<T>& own) {
        kernels.backward_softmax(q, first, last, {terms, 1, true, to.prior, false}, own, scratch);
      });
  });
  partition.reduce_partials();
}

}  // namespace
}  // namespace torchcaps

TORCHCAPS_ENTRY(attention_pass_forward, attention_forward, AttentionForward, AttentionSizes)
TORCHCAPS_ENTRY(attention_pass_backward, attention_backward, AttentionBackward, AttentionSizes)
