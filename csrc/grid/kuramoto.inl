// Kuramoto routing for one instruction set; included after grid/attention.inl.
#include "kernels.inl"
#include "kuramoto.h"

namespace torchcaps {
namespace {

template <class T>
struct KuramotoPass : GridPass<T> {
  using Base = GridPass<T>;
  using Problem = KuramotoProblem<T>;
  using typename Base::Cells;
  using typename Base::Child;
  using typename Base::Columns;
  using typename Base::Vec;
  static constexpr int L = Base::L;

  // The phases x_t [D] of a parent, and their products.
  struct Key {
    const Vec *phases, *products;
  };
  static INLINE Key key_of(const Problem& q, const T* keys, int64_t parent) {
    const Vec* at = reinterpret_cast<const Vec*>(keys) + parent * q.key_columns();
    return {at, at + q.turns * q.grid.out_dim()};
  }
  static INLINE Vec* sums_of(const Problem& q, T* sums, int64_t parent) {
    return reinterpret_cast<Vec*>(sums) + parent * q.sum_columns();
  }
  static INLINE const Vec* sums_of(const Problem& q, const T* sums, int64_t parent) {
    return reinterpret_cast<const Vec*>(sums) + parent * q.sum_columns();
  }

  // 1 / sqrt(x), or 0 for 0.
  static INLINE Vec inverse_root(Vec x) { return x > Vec{} ? T(1) / Columns::square_root(x) : Vec{}; }

  // Scratch of one child, with one value per pair of edge and parent.
  struct ChildScratch {
    Cells cells;
    int64_t pairs;
    Vec* votes;                        // [pairs][D]
    Vec *length, *inverse;             // |v| and its inverse, or 0
    Vec* coupling;                     // [turns + 1]
    Vec* shrink;                       // [turns]: one over the length before a turned phase is normalised
    Vec* dots;                         // [turns][turns]: of the phase before turn t and x_l, for l >= t
    Vec* parts;                        // [turns + 1]: the coefficients of the vote and of each x_t in the phase
    Vec* pull;                         // [turns + 1]: the product of the phase before turn t with the field's gradient
    Vec *grad, *grad_pull, *grad_dot;  // gradients of coupling or logits, of the pull, and [turns] of the dots
    Vec* none;

    INLINE ChildScratch(const Problem& q, Carver& carver)
        : cells(Base::take_cells(q.grid, carver)),
          pairs(Base::child_parents(q.grid)),
          votes(carver.take<Vec>(pairs * q.grid.out_dim())),
          length(carver.take<Vec>(pairs)),
          inverse(carver.take<Vec>(pairs)),
          coupling(carver.take<Vec>((q.turns + 1) * pairs)),
          shrink(carver.take<Vec>(q.turns * pairs)),
          dots(carver.take<Vec>(q.turns * q.turns * pairs)),
          parts(carver.take<Vec>((q.turns + 1) * pairs)),
          pull(carver.take<Vec>((q.turns + 1) * pairs)),
          grad(carver.take<Vec>(pairs)),
          grad_pull(carver.take<Vec>(pairs)),
          grad_dot(carver.take<Vec>(q.turns * pairs)),
          none(carver.take<Vec>(Base::child_sets(q.grid))) {}

    INLINE Vec& dot(const Problem& q, int64_t t, int64_t l, int64_t k) const {
      return dots[(t * q.turns + l) * pairs + k];
    }
  };

  // The votes of one child for all its parents, their lengths, and their products with the phases of the parents and,
  // where there are gradients, with that of the field.
  static INLINE void start(const Problem& q, const Child& child, const T* keys, const T* grads,
                           const ChildScratch& own) {
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim();
    const Vec even = Base::splat(Base::uniform_coupling(grid, child.edges()));
    Base::for_each_parent(grid, child, [&](int64_t parent, const T* matrix, int64_t k, int64_t kernel) {
      const Vec* phases = keys ? key_of(q, keys, parent).phases : nullptr;
      const Vec* of_field = grads ? sums_of(q, grads, parent) : nullptr;
      Vec* kept = own.votes + k * D;
      Vec square{}, pull{};
      for (int64_t l = 0; l < q.turns; ++l) own.dot(q, 0, l, k) = Vec{};
      Base::vote_blocks(grid, child.pose, matrix, kernel, child.activation,
                        [&](auto n, int64_t d, const Vec* votes) INLINE_LAMBDA {
                          constexpr int N = decltype(n)::value;
                          for (int i = 0; i < N; ++i) kept[d + i] = votes[i];
                          square += Columns::template dot<N>(votes, votes);
                          for (int64_t l = 0; l < q.turns; ++l)
                            own.dot(q, 0, l, k) += Columns::template dot<N>(votes, phases + l * D + d);
                          if (of_field) pull += Columns::template dot<N>(votes, of_field + d);
                        });
      const Vec length = Columns::square_root(square), inverse = length > Vec{} ? T(1) / length : Vec{};
      own.length[k] = length;
      own.inverse[k] = inverse;
      for (int64_t l = 0; l < q.turns; ++l) own.dot(q, 0, l, k) *= inverse;
      own.pull[k] = pull * inverse;
      own.coupling[k] = even;
    });
  }

  // What a turn does to a phase y towards x: y' = keep y + add x.
  struct Turn {
    Vec keep, add;

    INLINE Turn(Vec pulled, Vec dot, Vec shrink) : keep((1 - pulled * dot) * shrink), add(pulled * shrink) {}
  };

  // All turns of one child, up to its last coupling. Without gradients of the field also the parts of its phase.
  static INLINE void turn(const Problem& q, const Child& child, const T* keys, const T* grads,
                          const ChildScratch& own) {
    start(q, child, keys, grads, own);
    const int64_t pairs = own.pairs, D = q.grid.out_dim();
    if (!grads)
      for (int64_t k = 0; k < child.edges() * q.grid.parents; ++k) own.parts[k] = Base::splat(T(1));
    for (int64_t t = 0; t < q.turns; ++t) {
      Vec* next = own.coupling + (t + 1) * pairs;
      Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        const Vec* products = key_of(q, keys, parent).products + t * q.turns;
        const Vec pulled = q.step * own.coupling[t * pairs + k], dot = own.dot(q, t, t, k);
        // A phase has length 1; that of a zero vote is 0 until a parent pulls it.
        const Vec before = t ? own.shrink[(t - 1) * pairs + k] : own.inverse[k];
        const Vec phase = before > Vec{} ? Base::splat(T(1)) : Vec{};
        const Vec shrink = inverse_root(phase + pulled * pulled * (products[t] - dot * dot));
        const Turn now(pulled, dot, shrink);
        own.shrink[t * pairs + k] = shrink;
        next[k] = q.gain * (now.keep * dot + now.add * products[t]);
        for (int64_t l = t + 1; l < q.turns; ++l)
          own.dot(q, t + 1, l, k) = now.keep * own.dot(q, t, l, k) + now.add * products[l];
        if (grads) {
          const Vec of_part = sums_of(q, grads, parent)[D + t];
          own.pull[(t + 1) * pairs + k] = now.keep * own.pull[t * pairs + k] + now.add * of_part;
        } else {
          for (int64_t l = 0; l <= t; ++l) own.parts[l * pairs + k] *= now.keep;
          own.parts[(t + 1) * pairs + k] = now.add;
        }
      });
      Base::softmax(q.grid, child.edges(), nullptr, next, own.none);
    }
  }

  static void accumulate(const Problem& q, const CellBlock& block, const T* keys, T* sums, void* scratch) {
    const int64_t D = q.grid.out_dim();
    Carver carver(scratch);
    const ChildScratch own(q, carver);
    Base::for_each_child(q.grid, block, own.cells, [&](const Child& child) {
      turn(q, child, keys, nullptr, own);
      Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        Vec* sum = sums_of(q, sums, parent);
        const Vec* votes = own.votes + k * D;
        const Vec coupling = own.coupling[q.turns * own.pairs + k], share = coupling * own.parts[k];
        for (int64_t d = 0; d < D; ++d) sum[d] += share * votes[d];
        const Vec amplitude = coupling * own.length[k];
        for (int64_t t = 0; t < q.turns; ++t) sum[D + t] += amplitude * own.parts[(t + 1) * own.pairs + k];
        sum[D + q.turns] += amplitude;
      });
    });
  }

  // Backward through one turn of a pair, given the gradient of its new logit times the gain. Returns the gradient of
  // the coupling, and calls of_product(l, gradient) for the products of x_t with x_l.
  template <class OfProduct>
  static INLINE Vec turn_backward(const Problem& q, const ChildScratch& own, int64_t t, int64_t k, const Vec* products,
                                  Vec of_part, Vec of_logit, OfProduct of_product) {
    const int64_t pairs = own.pairs;
    const Vec pulled = q.step * own.coupling[t * pairs + k], dot = own.dot(q, t, t, k);
    const Vec shrink = own.shrink[t * pairs + k], across = products[t] - dot * dot;
    const Turn now(pulled, dot, shrink);
    Vec& grad_pull = own.grad_pull[k];
    Vec of_keep = of_logit * dot + grad_pull * own.pull[t * pairs + k];
    Vec of_add = of_logit * products[t] + grad_pull * of_part;
    grad_pull *= now.keep;
    for (int64_t l = t + 1; l < q.turns; ++l) {
      Vec& of_dot = own.grad_dot[l * pairs + k];
      of_keep += of_dot * own.dot(q, t, l, k);
      of_add += of_dot * products[l];
      of_product(l, of_dot * now.add);
      of_dot *= now.keep;
    }
    // Of the length before normalising, divided by it.
    const Vec of_length = Vec{} - shrink * shrink * (of_keep * now.keep + of_add * now.add);
    of_product(t, of_logit * now.add + T(0.5) * of_length * pulled * pulled);
    own.grad_dot[t * pairs + k] = of_logit * now.keep - pulled * (of_keep * shrink + of_length * pulled * dot);
    return q.step * (shrink * (of_add - of_keep * dot) + of_length * pulled * across);
  }

  // The gradients of one child's dots and pull; own.grad receives the gradient of the length of each vote that does not
  // pass through its phase. of_product(parent, t, l, gradient) is called for the products of the keys.
  template <class OfProduct>
  static INLINE void backward_turns(const Problem& q, const Child& child, const T* keys, const T* grads,
                                    const ChildScratch& own, OfProduct of_product) {
    turn(q, child, keys, grads, own);
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim(), pairs = own.pairs, R = q.turns;
    Vec lost{};
    Base::for_each_parent(grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
      const Vec of_share = own.pull[R * pairs + k] + sums_of(q, grads, parent)[D + R];
      own.grad[k] = own.length[k] * of_share;
      own.grad_pull[k] = own.coupling[R * pairs + k] * own.length[k];
    });
    for (int64_t t = R - 1; t >= 0; --t) {
      Base::softmax_backward(grid, child.edges(), false, Base::splat(q.gain), own.coupling + (t + 1) * pairs, nullptr,
                             own.grad, lost);
      Base::for_each_parent(grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        own.grad[k] =
            turn_backward(q, own, t, k, key_of(q, keys, parent).products + t * R, sums_of(q, grads, parent)[D + t],
                          own.grad[k], [&](int64_t l, Vec grad) INLINE_LAMBDA { of_product(parent, t * R + l, grad); });
      });
    }
  }

  static void accumulate_key_gradients(const Problem& q, const CellBlock& block, const T* keys, const T* grads,
                                       T* grad_keys, void* scratch) {
    const int64_t D = q.grid.out_dim();
    Carver carver(scratch);
    const ChildScratch own(q, carver);
    Vec* all = reinterpret_cast<Vec*>(grad_keys);
    Base::for_each_child(q.grid, block, own.cells, [&](const Child& child) {
      backward_turns(q, child, keys, grads, own, [&](int64_t parent, int64_t at, Vec grad) INLINE_LAMBDA {
        all[parent * q.key_columns() + q.turns * D + at] += grad;
      });
      Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        const Vec* votes = own.votes + k * D;
        for (int64_t l = 0; l < q.turns; ++l) {
          const Vec of_vote = own.grad_dot[l * own.pairs + k] * own.inverse[k];
          Vec* sum = all + parent * q.key_columns() + l * D;
          for (int64_t d = 0; d < D; ++d) sum[d] += of_vote * votes[d];
        }
      });
    });
  }

  // The gradients of the votes of one child, in `grad`, and that of its activation.
  static INLINE void child_gradient(const Problem& q, const Child& child, const T* keys, const T* grads,
                                    const ChildScratch& own, Vec* grad, Vec& grad_activation) {
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim(), pairs = own.pairs, R = q.turns;
    backward_turns(q, child, keys, grads, own, [](int64_t, int64_t, Vec) INLINE_LAMBDA {});
    Base::for_each_parent(grid, child, [&](int64_t parent, const T*, int64_t k, int64_t kernel) {
      const Vec inverse = own.inverse[k], *votes = own.votes + k * D, *of_sums = sums_of(q, grads, parent);
      Vec along = own.grad_pull[k] * own.pull[k];
      for (int64_t l = 0; l < R; ++l) along += own.grad_dot[l * pairs + k] * own.dot(q, 0, l, k);
      // The share's gradient without the length, less what the phase does not pass on along itself.
      const Vec of_length = own.coupling[R * pairs + k] * (own.pull[R * pairs + k] + of_sums[D + R]);
      const Vec of_vote = inverse * (of_length - inverse * along), of_field = inverse * own.grad_pull[k];
      Vec* out = grad + k * D;
      for (int64_t d = 0; d < D; ++d) out[d] = of_field * of_sums[d] + of_vote * votes[d];
      for (int64_t l = 0; l < R; ++l) {
        const Vec of_dot = inverse * own.grad_dot[l * pairs + k];
        const Vec* phase = key_of(q, keys, parent).phases + l * D;
        for (int64_t d = 0; d < D; ++d) out[d] += of_dot * phase[d];
      }
      if (!grid.offsets) return;
      grad_activation += out[0] * grid.offsets[2 * kernel];
      if (D > 1) grad_activation += out[1] * grid.offsets[2 * kernel + 1];
    });
  }

  struct BackwardScratch {
    ChildScratch child;
    typename Base::GradientScratch gradients;

    INLINE BackwardScratch(const Problem& q, Carver& carver) : child(q, carver), gradients(q.grid, carver) {}
  };

  static void backward(const Problem& q, int64_t first, int64_t last, const T* keys, const T* grads,
                       const GridGradients<T>& to, void* scratch) {
    const int64_t parents = q.grid.all_parents() * L;
    Carver carver(scratch);
    const BackwardScratch own(q, carver);
    Base::backward_children(q.grid, first, last, to, own.gradients,
                            [&](int64_t group, const Child& child, Vec* grad, Vec& grad_activation, Vec*) {
                              child_gradient(q, child, keys ? keys + group * parents * q.key_columns() : nullptr,
                                             grads + group * parents * q.sum_columns(), own.child, grad,
                                             grad_activation);
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

  static void reduce(int64_t columns, const T* partials, int64_t count, int64_t stride, T* out) {
    Base::sum_states(partials, count, stride, columns, out);
  }

  static int64_t scratch_bytes(const Problem& q) {
    Carver carver;
    BackwardScratch(q, carver);
    return carver.used();
  }

  static const KuramotoKernels<T>* table() {
    static constexpr KuramotoKernels<T> kernels = {
        L, accumulate, accumulate_key_gradients, backward, load, store, reduce, scratch_bytes};
    return &kernels;
  }
};

}  // namespace

template <>
const KuramotoKernels<float>* KuramotoTables<float>::INSTRUCTION_SET() {
  return KuramotoPass<float>::table();
}
template <>
const KuramotoKernels<double>* KuramotoTables<double>::INSTRUCTION_SET() {
  return KuramotoPass<double>::table();
}

}  // namespace torchcaps
