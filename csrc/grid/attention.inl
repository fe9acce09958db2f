// Attention over the votes of a grid for one instruction set; included after grid/kernels.inl.
#include "attention.h"
#include "kernels.inl"

namespace torchcaps {
namespace {

template <class T>
struct AttentionPass : GridPass<T> {
  using Base = GridPass<T>;
  using Problem = GridAttention<T>;
  using typename Base::Cells;
  using typename Base::Child;
  using typename Base::Columns;
  using typename Base::Rivals;
  using typename Base::Vec;
  static constexpr int L = Base::L;
  static constexpr T kLeaky = 0;

  static INLINE const T* background(const Problem& q) { return q.leaky ? &kLeaky : nullptr; }
  static INLINE bool has_logits(const Problem& q, const T* keys) { return keys || q.base || q.route; }
  static INLINE Vec presence(const Problem& q, const Child& child) {
    return q.weighted ? Base::splat(T(1)) : child.activation;
  }
  static INLINE Vec* entries(const Problem& q, T* state, int64_t parent) {
    return reinterpret_cast<Vec*>(state) + parent * q.grid.out_dim();
  }
  static INLINE const Vec* entries(const Problem& q, const T* state, int64_t parent) {
    return reinterpret_cast<const Vec*>(state) + parent * q.grid.out_dim();
  }
  // The mass of a parent, behind the entries of all parents.
  static INLINE Vec* masses(const Problem& q, T* state) { return entries(q, state, q.grid.all_parents()); }
  static INLINE const Vec* masses(const Problem& q, const T* state) { return entries(q, state, q.grid.all_parents()); }

  // Scratch of one child: for all its parents the votes, the coupling, the gradient of the coupling or logit.
  struct ChildScratch {
    Cells cells;
    Vec *votes, *coupling, *grad, *none;

    INLINE ChildScratch(const Grid<T>& q, Carver& carver)
        : cells(Base::take_cells(q, carver)),
          votes(carver.take<Vec>(Base::child_parents(q) * q.out_dim())),
          coupling(carver.take<Vec>(Base::child_parents(q))),
          grad(carver.take<Vec>(Base::child_parents(q))),
          none(carver.take<Vec>(Base::child_sets(q))) {}
  };

  static INLINE Vec sum_of_products(const Vec* a, const Vec* b, int64_t size) {
    Vec sum[2] = {Vec{}, Vec{}};
    for (int64_t d = 0; d < size; ++d) sum[d % 2] += a[d] * b[d];
    return sum[0] + sum[1];
  }

  // The coupling of one child to all its parents, and its votes for them where they are read.
  static INLINE void couple(const Problem& q, const Child& child, const T* keys, bool keep_votes,
                            const ChildScratch& own) {
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim(), P = grid.in_dim();
    const Vec there = presence(q, child);
    Base::for_each_parent(grid, child, [&](int64_t parent, const T* matrix, int64_t k, int64_t kernel) {
      Vec* kept = own.votes + k * D;
      Vec logit{};
      const Vec* key = keys ? entries(q, keys, parent) : nullptr;
      if (key || keep_votes)
        Base::vote_blocks(grid, child.pose, matrix, kernel, there,
                          [&](auto n, int64_t d, const Vec* votes) INLINE_LAMBDA {
                            constexpr int N = decltype(n)::value;
                            for (int i = 0; i < N; ++i) kept[d + i] = votes[i];
                            if (key) logit += Columns::template dot<N>(votes, key + d);
                          });
      if (q.base) logit += q.base[pair_of(q, child, k, kernel)];
      if (q.route) {
        const T* route = q.route + pair_of(q, child, k, kernel) * P;
        for (int64_t p = 0; p < P; ++p) logit += child.pose[p] * route[p];
      }
      own.coupling[k] = logit;
    });
    if (has_logits(q, keys)) {
      Base::softmax(grid, child.edges(), background(q), own.coupling, own.none);
      return;
    }
    const Vec even = uniform(q, child);
    for (int64_t k = 0; k < child.edges() * grid.parents; ++k) own.coupling[k] = even;
  }

  static INLINE Vec uniform(const Problem& q, const Child& child) {
    return Base::splat(T(1) / T(Rivals::of(q.grid, child.edges()).count + q.leaky));
  }

  // The place of a child and its parent number k in the tensors of pairs.
  static INLINE int64_t pair_of(const Problem& q, const Child& child, int64_t k, int64_t kernel) {
    return q.pairs_at(kernel, child.type) + k % q.grid.parents;
  }

  // The share of parent number k in a child.
  static INLINE Vec share_of(const Problem& q, const Child& child, Vec coupling, int64_t k, int64_t kernel) {
    if (q.weighted) return child.activation * coupling;
    return q.prior ? coupling + q.prior[pair_of(q, child, k, kernel)] : coupling;
  }

  static void accumulate(const Problem& q, const CellBlock& block, const T* keys, T* total, void* scratch) {
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim();
    Carver carver(scratch);
    const ChildScratch own(grid, carver);
    // Without keys the coupling is known before the votes are: each vote is added as soon as it is computed.
    const bool at_once = !keys, even_shares = !has_logits(q, keys);
    Base::for_each_child(grid, block, own.cells, [&](const Child& child) {
      if (!even_shares) couple(q, child, keys, !at_once, own);
      const Vec even = uniform(q, child), there = presence(q, child);
      Base::for_each_parent(grid, child, [&](int64_t parent, const T* matrix, int64_t k, int64_t kernel) {
        const Vec share = share_of(q, child, even_shares ? even : own.coupling[k], k, kernel);
        Vec* sum = entries(q, total, parent);
        if (q.weighted) masses(q, total)[parent] += share;
        if (at_once) {
          Base::vote_blocks(grid, child.pose, matrix, kernel, there,
                            [&](auto n, int64_t d, const Vec* votes) INLINE_LAMBDA {
                              for (int i = 0; i < decltype(n)::value; ++i) sum[d + i] += share * votes[i];
                            });
        } else {
          const Vec* votes = own.votes + k * D;
          for (int64_t d = 0; d < D; ++d) sum[d] += share * votes[d];
        }
      });
    });
  }

  // The gradient of each coupling of one child, in own.grad.
  static INLINE void coupling_gradients(const Problem& q, const Child& child, const T* grads, const ChildScratch& own) {
    const int64_t D = q.grid.out_dim();
    Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
      own.grad[k] = sum_of_products(own.votes + k * D, entries(q, grads, parent), D);
      if (q.weighted) own.grad[k] += masses(q, grads)[parent];
    });
  }

  // From the gradients of the coupling in own.grad to those of the logits; returns the gradient of the activation as a
  // factor of the shares.
  static INLINE Vec logit_gradients(const Problem& q, const Child& child, const ChildScratch& own) {
    Vec lost{};
    const Vec factor = q.weighted ? child.activation : Base::splat(T(1));
    return Base::softmax_backward(q.grid, child.edges(), q.leaky, factor, own.coupling, own.none, own.grad, lost);
  }

  static void accumulate_key_gradients(const Problem& q, const CellBlock& block, const T* keys, const T* grads,
                                       T* total, void* scratch) {
    const int64_t D = q.grid.out_dim();
    Carver carver(scratch);
    const ChildScratch own(q.grid, carver);
    Base::for_each_child(q.grid, block, own.cells, [&](const Child& child) {
      couple(q, child, keys, true, own);
      coupling_gradients(q, child, grads, own);
      logit_gradients(q, child, own);
      Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        const Vec* votes = own.votes + k * D;
        Vec* sum = entries(q, total, parent);
        for (int64_t d = 0; d < D; ++d) sum[d] += own.grad[k] * votes[d];
      });
    });
  }

  static INLINE T sum_of_lanes(Vec x) {
    T sum{};
    for (int l = 0; l < L; ++l) sum += x[l];
    return sum;
  }

  // The gradients of the votes of one child, in `grad`, and those of its activation, pose and pairs.
  static INLINE void child_gradient(const Problem& q, const Child& child, const T* keys, const T* grads,
                                    const ChildScratch& own, const PairGradients<T>& pairs, Vec* grad,
                                    Vec& grad_activation, Vec* grad_pose) {
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim(), P = grid.in_dim();
    const bool through = q.through && has_logits(q, keys);
    // Without a gradient through the coupling, of a prior or of activations in the share, nothing depends on the votes.
    const bool needs_votes = through || q.weighted || pairs.prior, coupled = needs_votes || has_logits(q, keys);
    if (coupled) couple(q, child, keys, needs_votes, own);
    if (needs_votes) {
      coupling_gradients(q, child, grads, own);
      if (pairs.prior)
        Base::for_each_parent(grid, child, [&](int64_t, const T*, int64_t k, int64_t kernel) {
          pairs.prior[pair_of(q, child, k, kernel)] += sum_of_lanes(own.grad[k]);
        });
      if (q.weighted && !through)
        for (int64_t k = 0; k < child.edges() * grid.parents; ++k) grad_activation += own.coupling[k] * own.grad[k];
      if (through) {
        const Vec of_shares = logit_gradients(q, child, own);
        if (q.weighted) grad_activation += of_shares;
      }
    }
    const Vec even = uniform(q, child);
    Base::for_each_parent(grid, child, [&](int64_t parent, const T*, int64_t k, int64_t kernel) {
      const Vec share = share_of(q, child, coupled ? own.coupling[k] : even, k, kernel);
      const Vec* of_total = entries(q, grads, parent);
      Vec* out = grad + k * D;
      for (int64_t d = 0; d < D; ++d) out[d] = share * of_total[d];
      if (through) {
        const Vec of_logit = own.grad[k];
        if (keys) {
          const Vec* key = entries(q, keys, parent);
          for (int64_t d = 0; d < D; ++d) out[d] += of_logit * key[d];
        }
        if (pairs.base) pairs.base[pair_of(q, child, k, kernel)] += sum_of_lanes(of_logit);
        if (q.route) {
          const int64_t at = pair_of(q, child, k, kernel) * P;
          for (int64_t p = 0; p < P; ++p) {
            grad_pose[p] += of_logit * q.route[at + p];
            if (pairs.route) pairs.route[at + p] += sum_of_lanes(of_logit * child.pose[p]);
          }
        }
      }
      if (grid.offsets && !q.weighted) {
        grad_activation += out[0] * grid.offsets[2 * kernel];
        if (D > 1) grad_activation += out[1] * grid.offsets[2 * kernel + 1];
      }
    });
  }

  struct BackwardScratch {
    ChildScratch child;
    typename Base::GradientScratch gradients;

    INLINE BackwardScratch(const Grid<T>& q, Carver& carver) : child(q, carver), gradients(q, carver) {}
  };

  static void backward(const Problem& q, int64_t first, int64_t last, const T* keys, const T* grads,
                       const GridGradients<T>& to, const PairGradients<T>& pairs, void* scratch) {
    const int64_t key_size = q.grid.all_parents() * q.grid.out_dim() * L, state = q.state() * L;
    Carver carver(scratch);
    const BackwardScratch own(q.grid, carver);
    Base::backward_children(q.grid, first, last, to, own.gradients,
                            [&](int64_t group, const Child& child, Vec* grad, Vec& grad_activation, Vec* grad_pose) {
                              child_gradient(q, child, keys ? keys + group * key_size : nullptr, grads + group * state,
                                             own.child, pairs, grad, grad_activation, grad_pose);
                            });
  }

  static void load(const Problem& q, int64_t group, int64_t columns, const T* matrix, T* vectors) {
    Columns::load_columns(matrix + group * L * columns, columns, Base::rows_of(q.grid, group), 0, columns,
                          reinterpret_cast<Vec*>(vectors));
  }

  static void store(const Problem& q, int64_t group, int64_t columns, const T* vectors, T* matrix) {
    Columns::store_columns(matrix + group * L * columns, columns, Base::rows_of(q.grid, group), 0, columns,
                           reinterpret_cast<const Vec*>(vectors));
  }

  static void reduce(const Problem& q, const T* partials, int64_t count, int64_t stride, T* out) {
    Base::sum_states(partials, count, stride, q.state(), out);
  }

  static int64_t scratch_bytes(const Problem& q) {
    Carver carver;
    BackwardScratch(q.grid, carver);
    return carver.used();
  }

  static const GridAttentionKernels<T>* table() {
    static constexpr GridAttentionKernels<T> kernels = {
        L, accumulate, accumulate_key_gradients, backward, load, store, reduce, scratch_bytes};
    return &kernels;
  }
};

}  // namespace

template <>
const GridAttentionKernels<float>* GridAttentionTables<float>::INSTRUCTION_SET() {
  return AttentionPass<float>::table();
}
template <>
const GridAttentionKernels<double>* GridAttentionTables<double>::INSTRUCTION_SET() {
  return AttentionPass<double>::table();
}

}  // namespace torchcaps
