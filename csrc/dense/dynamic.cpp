// Dynamic routing from poses and weight without stored votes; derived in src/torchcaps/ops/dynamic/README.md.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "../common/c_api.h"
#include "launch.h"

namespace torchcaps {
namespace {

struct DynamicSizes {
  int64_t batch, children, parents, in_dim, out_dim, iters, shared, leaky, last_only, squash;
};

template <class T>
struct DynamicForward {
  const T *poses, *weight, *bias;  // bias [J, D] may be null
  T *out, *presquash;              // [B, J, D]; [R, B, J, D], which the backward pass starts from, may be null
};

template <class T>
struct DynamicBackward {
  const T *poses, *weight, *presquash, *grad_out;
  T *grad_poses, *grad_weight, *grad_bias;  // each may be null
};

void check(const DynamicSizes& s) {
  if (s.iters < 1 || s.iters > std::numeric_limits<int>::max())
    throw std::invalid_argument("expected from 1 to 2^31 - 1 iterations");
  if (s.squash > int64_t(Squash::exponential)) throw std::invalid_argument("unknown form of squash");
}

template <class T>
void dynamic_forward(const DynamicForward<T>& to, const DynamicSizes& s, int threads) {
  check(s);
  const Squash form = Squash(s.squash);
  Launch<T> launch(make_votes(to.poses, to.weight, s), s.iters, 0, threads);
  const Votes<T>& q = launch.votes;
  const DenseKernels<T>& kernels = launch.kernels;
  const int64_t rows = s.batch * q.tile();
  T *key, *current, *parents;  // key: the sum of the parents' poses of the iterations so far
  launch.allocate([&](Carver& carver) {
    key = carver.take<T>(launch.tiles);
    current = carver.take<T>(launch.tiles);
    parents = carver.take<T>(launch.tiles);
  });
  launch.run([&](T* scratch) {
    for (int64_t r = 0; r < s.iters; ++r) {
      launch.accumulate([&](const Block& block, T* total) {
        if (r)
          kernels.accumulate_softmax(q, block, {key + block.group * launch.tile, nullptr, s.leaky != 0}, total,
                                     scratch);
        else
          kernels.accumulate_uniform(q, block, {}, total, scratch);
      });
      launch.for_each_group([&](int64_t group, int64_t at) {
        const T scale = r ? T(1) : T(1) / T(s.parents + s.leaky);
        launch.reduce_partials(group, scale, to.bias, current + at);
        kernels.squash(q, form, current + at, parents + at);
        if (to.presquash) kernels.store_tile(q, group, current + at, to.presquash + r * rows);
        if (r == s.iters - 1) kernels.store_tile(q, group, parents + at, to.out);
        for (int64_t k = at; k < at + launch.tile; ++k) key[k] = (r ? key[k] : T(0)) + parents[k];
      });
    }
  });
}

// The gradient of the bias: the sum over iterations and samples of the gradient of the presquash.
template <class T>
void sum_bias_gradient(const Launch<T>& launch, const T* grads, int64_t first, int64_t last, T* grad_bias) {
  const int lanes = launch.kernels.lanes;
  for (int64_t k = 0; k < launch.votes.tile(); ++k) {
    T sum{};
    for (int64_t r = first; r < last; ++r)
      for (int64_t group = 0; group < launch.plan.groups; ++group) {
        const T* lane = grads + r * launch.tiles + group * launch.tile + k * lanes;
        T part{};
        for (int l = 0; l < lanes; ++l) part += lane[l];
        sum += part;
      }
    grad_bias[k] = sum;
  }
}

template <class T>
void dynamic_backward(const DynamicBackward<T>& to, const DynamicSizes& s, int threads) {
  check(s);
  const Squash form = Squash(s.squash);
  const bool leaky = s.leaky != 0;
  // The iterations whose coupling or votes pass gradients on.
  const int64_t R = s.iters, first_term = s.last_only ? R - 1 : 0;
  const int count = int(R - first_term);
  Launch<T> launch(make_votes(to.poses, to.weight, s), s.iters, count, threads);
  const Votes<T>& q = launch.votes;
  const DenseKernels<T>& kernels = launch.kernels;
  const int64_t tiles = launch.tiles, tile = launch.tile, rows = s.batch * q.tile();
  GradientPartition<T> partition(q, {to.grad_poses, to.grad_weight, nullptr, nullptr});
  T *keys, *grads;  // [R] tiles of all groups: the key of an iteration, the gradient of its presquash
  T *current, *parents, *grad_parents;  // tiles of all groups
  Term<T>* terms;                       // [groups][count]
  launch.allocate([&](Carver& carver) {
    keys = carver.take<T>(R * tiles);
    grads = carver.take<T>(R * tiles);
    current = carver.take<T>(tiles);
    parents = carver.take<T>(tiles);
    grad_parents = carver.take<T>(tiles);
    terms = carver.take<Term<T>>(launch.plan.groups * count);
    partition.take(carver);
  });
  const auto term_of = [&](int64_t group, int64_t r) -> Term<T>& { return terms[group * count + r - first_term]; };
  launch.run([&](T* scratch) {
    launch.for_each_group([&](int64_t group, int64_t at) {
      std::fill(keys + at, keys + at + tile, T(0));
      for (int64_t r = 0; r < R; ++r) {
        kernels.load_tile(q, group, to.presquash + r * rows, current + at);
        if (r == R - 1) break;
        kernels.squash(q, form, current + at, parents + at);
        for (int64_t k = at; k < at + tile; ++k) keys[(r + 1) * tiles + k] = keys[r * tiles + k] + parents[k];
      }
      kernels.load_tile(q, group, to.grad_out, grad_parents + at);
      kernels.squash_backward(q, form, current + at, grad_parents + at, grads + (R - 1) * tiles + at);
      std::fill(grad_parents + at, grad_parents + at + tile, T(0));
      for (int64_t r = first_term; r < R; ++r)
        term_of(group, r) = {r ? keys + r * tiles + at : nullptr, grads + r * tiles + at};
    });
    for (int64_t r = R - 1; r > first_term; --r) {
      launch.accumulate([&](const Block& block, T* total) {
        kernels.backward_key(q, block, term_of(block.group, r), leaky, total, scratch);
      });
      launch.for_each_group([&](int64_t group, int64_t at) {
        launch.reduce_partials(group, T(1), nullptr, parents + at);
        for (int64_t k = at; k < at + tile; ++k) grad_parents[k] += parents[k];
        kernels.load_tile(q, group, to.presquash + (r - 1) * rows, current + at);
        kernels.squash_backward(q, form, current + at, grad_parents + at, grads + (r - 1) * tiles + at);
      });
    }
    if (to.grad_poses || to.grad_weight)
      partition.run(launch, [&](int64_t first, int64_t last, const Gradients<T>& own) {
        kernels.backward_softmax(q, first, last, {terms, count, !s.last_only, nullptr, leaky}, own, scratch);
      });
  });
  partition.reduce_partials();
  if (to.grad_bias) sum_bias_gradient(launch, grads, first_term, R, to.grad_bias);
}

}  // namespace
}  // namespace torchcaps

TORCHCAPS_ENTRY(dynamic_forward, dynamic_forward, DynamicForward, DynamicSizes)
TORCHCAPS_ENTRY(dynamic_backward, dynamic_backward, DynamicBackward, DynamicSizes)
