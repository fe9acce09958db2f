// Passes over the children of a grid for one instruction set; included after dense/kernels.inl.
#pragma once

#include "kernels.h"

namespace torchcaps {
namespace {

template <class T>
struct GridPass {
  using Columns = Dense<T>;
  using Vec = typename Columns::Vec;
  using Unaligned = typename Columns::Unaligned;
  static constexpr int L = Columns::L;

  static INLINE Vec splat(T x) { return Vec{} + x; }
  static INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }
  static INLINE Vec load(const Unaligned& x) { return x; }

  // exp(x) for x <= 0, with 0 below e^-60: such values vanish beside the mass floor and would become subnormal numbers.
  static INLINE Vec exp_or_zero(Vec x) {
    const Vec y = exp_negative<VECTOR_BYTES>(x, T{});
    return x < splat(-60) ? Vec{} : y;
  }

  // One child of a group of samples.
  struct Child {
    const Vec* pose;  // [P]
    Vec activation;
    int64_t type, in_block;  // its type, and its number among the children that were loaded with it
    const Edge *first, *last;

    INLINE int64_t edges() const { return last - first; }
  };

  // Cells whose poses are transposed at once: whole vectors of columns, small compared with the first-level cache.
  static INLINE int64_t cells_at_once(const Grid<T>& q) {
    const int64_t width = q.types * q.in_dim();
    return width >= 64 || width < 1 ? 1 : 64 / width;
  }

  // The poses and activations of some cells, one vector per value.
  struct Cells {
    Vec *poses, *activations;
  };

  static INLINE Cells take_cells(const Grid<T>& q, Carver& carver, int64_t groups = 1) {
    const int64_t children = groups * cells_at_once(q) * q.types;
    return {carver.take<Vec>(children * q.in_dim()), carver.take<Vec>(children)};
  }

  static INLINE int64_t rows_of(const Grid<T>& q, int64_t group) {
    const int64_t left = q.batch - group * L;
    return left < L ? left : L;
  }

  static INLINE void load_cells(const Grid<T>& q, int64_t group, int64_t first, int64_t last, const Cells& own) {
    const int64_t children = q.cells * q.types, width = children * q.in_dim(), step = q.types * q.in_dim();
    const int64_t rows = rows_of(q, group), count = last - first;
    Columns::load_columns(q.poses + group * L * width, width, rows, first * step, count * step, own.poses);
    Columns::load_columns(q.activations + group * L * children, children, rows, first * q.types, count * q.types,
                          own.activations);
  }

  // Calls use(child) for every child of loaded cells that votes for any parent.
  template <class Use>
  static INLINE void for_each_loaded(const Grid<T>& q, int64_t first, int64_t last, const Cells& own, Use use) {
    for (int64_t cell = first; cell < last; ++cell) {
      const Edge *begin = q.edges + q.first[cell], *end = q.edges + q.first[cell + 1];
      if (begin == end) continue;
      for (int64_t type = 0; type < q.types; ++type) {
        const int64_t at = (cell - first) * q.types + type;
        use(Child{own.poses + at * q.in_dim(), own.activations[at], type, at, begin, end});
      }
    }
  }

  template <class Use>
  static INLINE void for_each_child(const Grid<T>& q, const CellBlock& block, const Cells& own, Use use) {
    const int64_t step = cells_at_once(q);
    for (int64_t first = block.first; first < block.last; first += step) {
      const int64_t last = first + step < block.last ? first + step : block.last;
      load_cells(q, block.group, first, last, own);
      for_each_loaded(q, first, last, own, use);
    }
  }

  // Calls use(parent, matrix, its number among the edges and parents of the child, kernel cell) for all parents.
  template <class Use>
  static INLINE void for_each_parent(const Grid<T>& q, const Child& child, Use use) {
    int64_t k = 0;
    for (const Edge* edge = child.first; edge < child.last; ++edge) {
      const T* matrix = q.weight + q.weight_at(*edge, child.type);
      for (int64_t j = 0; j < q.parents; ++j, ++k, matrix += q.matrix())
        use(edge->position * q.parents + j, matrix, k, edge->kernel);
    }
  }

  // Calls use(Int<N>, d, votes [N]) for all entries d of one vote, in blocks of constant size. The offsets are scaled
  // by `presence`.
  template <class Use>
  static INLINE void vote_blocks(const Grid<T>& q, const Vec* pose, const T* matrix, int64_t kernel, Vec presence,
                                 Use use) {
    for (int64_t row = 0; row < q.vote_rows; ++row)
      Columns::blocks(q.vote_columns, [&](auto n, int64_t c) INLINE_LAMBDA {
        constexpr int N = decltype(n)::value;
        Vec votes[N];
        Columns::template vote<N>(pose + row * q.inner, matrix + c, q.inner, q.vote_columns, votes);
        const int64_t d = row * q.vote_columns + c;
        if (q.offsets && d < 2) {
          votes[0] += presence * q.offsets[2 * kernel + d];
          if (N > 1 && d == 0) votes[1] += presence * q.offsets[2 * kernel + 1];
        }
        use(n, d, votes);
      });
  }

  // How the values of one child, [edges][parents], fall into sets of rivals: set n begins at n * next and has `count`
  // values, `stride` apart.
  struct Rivals {
    int64_t sets, next, count, stride;

    static INLINE Rivals of(const Grid<T>& q, int64_t edges) {
      if (q.competition == Competition::kLocal) return {edges, q.parents, q.parents, 1};
      if (q.competition == Competition::kPositions) return {q.parents, 1, edges, q.parents};
      return {1, 0, edges * q.parents, 1};
    }
  };

  // The first coupling of a child to each of its parents.
  static INLINE T uniform_coupling(const Grid<T>& q, int64_t edges) {
    if (q.start_types || q.competition == Competition::kLocal) return T(1) / T(q.parents);
    return T(1) / T(q.competition == Competition::kPositions ? edges : edges * q.parents);
  }

  // Softmax over each set of rivals, in place. With a background, its logit takes part and `none` receives its share.
  static INLINE void softmax(const Grid<T>& q, int64_t edges, const T* background, Vec* x, Vec* none) {
    const Rivals rivals = Rivals::of(q, edges);
    const int64_t stride = rivals.stride, all = rivals.count * stride;
    for (int64_t set = 0; set < rivals.sets; ++set) {
      Vec* own = x + set * rivals.next;
      Vec top = own[0];
      for (int64_t k = stride; k < all; k += stride) top = larger(top, own[k]);
      if (background) top = larger(top, splat(*background));
      Vec total{};
      for (int64_t k = 0; k < all; k += stride) {
        own[k] = exp_or_zero(own[k] - top);
        total += own[k];
      }
      if (background) {
        none[set] = exp_or_zero(splat(*background) - top);
        total += none[set];
      }
      const Vec scale = T(1) / total;
      for (int64_t k = 0; k < all; k += stride) own[k] *= scale;
      if (background) none[set] *= scale;
    }
  }

  // From the gradient of the coupling to that of the logits times `factor`, in place. Returns the sum over all rivals
  // of coupling * gradient; `lost` receives what the background loses.
  static INLINE Vec softmax_backward(const Grid<T>& q, int64_t edges, bool background, Vec factor, const Vec* coupling,
                                     const Vec* none, Vec* grad, Vec& lost) {
    const Rivals rivals = Rivals::of(q, edges);
    const int64_t stride = rivals.stride, all = rivals.count * stride;
    Vec total{};
    for (int64_t set = 0; set < rivals.sets; ++set) {
      const int64_t begin = set * rivals.next;
      Vec mean{};
      for (int64_t k = begin; k < begin + all; k += stride) mean += coupling[k] * grad[k];
      for (int64_t k = begin; k < begin + all; k += stride) grad[k] = factor * coupling[k] * (grad[k] - mean);
      if (background) lost += factor * none[set] * mean;
      total += mean;
    }
    return total;
  }

  // Values of a child: one per edge and parent, one vote each, and one per set of rivals.
  static INLINE int64_t child_parents(const Grid<T>& q) { return q.max_edges * q.parents; }
  static INLINE int64_t child_sets(const Grid<T>& q) { return q.max_edges > q.parents ? q.max_edges : q.parents; }

  // The gradient of a pose from that of one vote.
  static INLINE void add_pose_gradient(const Grid<T>& q, const T* matrix, const Vec* grad, Vec* out) {
    for (int64_t row = 0; row < q.vote_rows; ++row) {
      const Vec* g = grad + row * q.vote_columns;
      Vec* to = out + row * q.inner;
      int64_t p = 0;
      for (; p + 8 <= q.inner; p += 8)
        Columns::template pose_gradient<8>(matrix + p * q.vote_columns, q.vote_columns, g, to + p);
      if (p + 4 <= q.inner) {
        Columns::template pose_gradient<4>(matrix + p * q.vote_columns, q.vote_columns, g, to + p);
        p += 4;
      }
      for (; p < q.inner; ++p)
        Columns::template pose_gradient<1>(matrix + p * q.vote_columns, q.vote_columns, g, to + p);
    }
  }

  // Groups of samples whose weight gradients are summed in registers: as many as leave the gradients of one child's
  // votes in the second-level cache.
  static INLINE int groups_at_once(const Grid<T>& q) {
    const int64_t bytes = child_parents(q) * q.out_dim() * int64_t(sizeof(Vec)), count = bytes ? 256 * 1024 / bytes : 1;
    return int(count < 1 ? 1 : count > kMaxGroupChunk ? int64_t(kMaxGroupChunk) : count);
  }

  // Scratch of a pass that computes the gradients of poses, activations and weight.
  struct GradientScratch {
    Cells cells, grads;  // of all groups, and their gradients
    Vec* votes;          // [groups][edges * parents][D]: the gradients of one child's votes

    INLINE GradientScratch(const Grid<T>& q, Carver& carver)
        : cells(take_cells(q, carver, groups_at_once(q))),
          grads(take_cells(q, carver, groups_at_once(q))),
          votes(carver.take<Vec>(groups_at_once(q) * child_parents(q) * q.out_dim())) {}
  };

  // out = sum of `count` states of `size` vectors, `stride` values apart.
  static INLINE void sum_states(const T* partials, int64_t count, int64_t stride, int64_t size, T* out) {
    for (int64_t k = 0; k < size; ++k) {
      Vec sum{};
      for (int64_t part = 0; part < count; ++part) sum += reinterpret_cast<const Vec*>(partials + part * stride)[k];
      reinterpret_cast<Vec*>(out)[k] = sum;
    }
  }

  // Calls child_gradient(group, child, gradients of its votes [edges][parents][D], gradient of its activation, gradient
  // of its pose) for every child of the cells [first, last) and every group, and takes the gradients of the votes on to
  // poses and weight.
  template <class ChildGradient>
  static INLINE void backward_children(const Grid<T>& q, int64_t first, int64_t last, const GridGradients<T>& to,
                                       const GradientScratch& own, ChildGradient child_gradient) {
    const int64_t P = q.in_dim(), D = q.out_dim(), step = cells_at_once(q), votes = child_parents(q) * D;
    const int64_t children = q.cells * q.types, groups = (q.batch + L - 1) / L;
    const int64_t child_step = step * q.types, pose_step = child_step * P;
    const int most = groups_at_once(q);
    const auto of_group = [&](const Cells& all, int64_t g) {
      return Cells{all.poses + g * pose_step, all.activations + g * child_step};
    };
    for (int64_t cell = first; cell < last; cell += step) {
      const int64_t end = cell + step < last ? cell + step : last, count = (end - cell) * q.types;
      for (int64_t chunk = 0; chunk < groups; chunk += most) {
        const int here = int(chunk + most < groups ? most : groups - chunk);
        for (int g = 0; g < here; ++g) {
          load_cells(q, chunk + g, cell, end, of_group(own.cells, g));
          const Cells grads = of_group(own.grads, g);
          for (int64_t k = 0; k < count * P; ++k) grads.poses[k] = Vec{};
          for (int64_t k = 0; k < count; ++k) grads.activations[k] = Vec{};
        }
        for_each_loaded(q, cell, end, own.cells, [&](const Child& of_first) {
          const int64_t at = of_first.in_block;
          for (int g = 0; g < here; ++g) {
            const Cells cells = of_group(own.cells, g), grads = of_group(own.grads, g);
            Child child = of_first;
            child.pose = cells.poses + at * P;
            child.activation = cells.activations[at];
            Vec* grad = own.votes + g * votes;
            child_gradient(chunk + g, child, grad, grads.activations[at], grads.poses + at * P);
            for_each_parent(q, child, [&](int64_t, const T* matrix, int64_t k, int64_t) {
              add_pose_gradient(q, matrix, grad + k * D, grads.poses + at * P);
            });
          }
          for_each_parent(q, of_first, [&](int64_t, const T* matrix, int64_t k, int64_t) {
            Columns::weight_gradient(q.inner, q.vote_columns, here, q.vote_rows, own.cells.poses + at * P, pose_step,
                                     own.votes + k * D, votes, to.weight + (matrix - q.weight));
          });
        });
        for (int g = 0; g < here; ++g) {
          const int64_t rows = rows_of(q, chunk + g), from = (chunk + g) * L * children;
          const Cells grads = of_group(own.grads, g);
          Columns::store_columns(to.poses + from * P, children * P, rows, cell * q.types * P, count * P, grads.poses);
          Columns::store_columns(to.activations + from, children, rows, cell * q.types, count, grads.activations);
        }
      }
    }
  }
};

}  // namespace
}  // namespace torchcaps
