// EM routing of one sample for one instruction set; included after dense/kernels.inl, which includes the vector types.
#include <limits>

#include "kernels.h"

#define UNROLL _Pragma("GCC unroll 16")

namespace torchcaps {
namespace {

template <class T>
struct Em {
  using Problem = EmProblem<T>;
  using Vec = typename Lanes<T, VECTOR_BYTES>::Vec;
  using Unaligned = typename Lanes<T, VECTOR_BYTES>::Unaligned;
  static constexpr int L = VECTOR_BYTES / sizeof(T);
  static constexpr int D = 16;

  // The state of a block of parents after one iteration, saved for the gradients. It is memory of the caller, who may
  // return it at another address, so it must not assume alignment.
  struct Saved {
    Unaligned mean[D], variance[D], mass, half_log_det, activity;
  };
  // A block of parents in the E-step: log a_j N(v) = base - sum_h half_precision_h (v_h - mean_h)^2.
  struct Gaussian {
    Vec mean[D], half_precision[D], base;
  };
  // Weighted sums over the children of a block of 1, d and d^2, where d is the distance to a mean.
  struct Moments {
    Vec first[D], second[D], zeroth;
  };
  // The gradient of a child's share is constant + sum_h (mean_h d_h + variance_h d_h^2).
  struct ShareGradient {
    Vec mean[D], variance[D], constant;
  };

  static INLINE Vec load(const Unaligned& x) { return x; }
  static INLINE Vec splat(T x) { return Vec{} + x; }
  static INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }
  static INLINE T sum_lanes(Vec x) {
    T sum{};
    for (int l = 0; l < L; ++l) sum += x[l];
    return sum;
  }
  static INLINE T max_lanes(Vec x) {
    T top = x[0];
    for (int l = 1; l < L; ++l) top = x[l] > top ? x[l] : top;
    return top;
  }

  // exp(x) for x <= 0, with 0 below e^-60: such values vanish beside the mass floor and would become subnormal numbers.
  static INLINE Vec exp_or_zero(Vec x) {
    const Vec y = exp_negative<VECTOR_BYTES>(x, T{});
    return x < splat(-60) ? Vec{} : y;
  }

  // The product of a child's pose and a block of weights, both 4x4.
  static INLINE void compute_votes(const T* pose, const Vec* w, Vec* votes) {
    UNROLL for (int r = 0; r < 4; ++r) {
      UNROLL for (int c = 0; c < 4; ++c) votes[4 * r + c] =
          pose[4 * r] * w[c] + pose[4 * r + 1] * w[4 + c] + pose[4 * r + 2] * w[8 + c] + pose[4 * r + 3] * w[12 + c];
    }
  }

  // The children of one sample.
  struct View {
    const Problem& q;
    const T* poses;
    const T* activations;

    View(const Problem& problem, int64_t sample)
        : q(problem),
          poses(problem.poses + sample * problem.cells * problem.types * D),
          activations(problem.activations + sample * problem.cells * problem.types) {}

    INLINE const Vec* weight(const Edge& edge, int64_t type, int64_t block) const {
      const int64_t child = q.shared ? type : edge.kernel * q.types + type;
      return reinterpret_cast<const Vec*>(q.weight) + (child * q.blocks + block) * D;
    }
    INLINE void votes(const T* pose, const Edge& edge, int64_t type, int64_t block, Vec* out) const {
      compute_votes(pose, weight(edge, type, block), out);
      if (!q.offsets) return;
      out[0] += q.offsets[2 * edge.kernel];
      out[1] += q.offsets[2 * edge.kernel + 1];
    }
    INLINE Vec is_parent(int64_t block) const { return reinterpret_cast<const Vec*>(q.is_parent)[block]; }
    // One over the first coupling of a child to each of its parents.
    INLINE T num_parents(int64_t edges) const {
      if (q.start_types || q.competition == Competition::kLocal) return T(q.parents);
      return T(q.competition == Competition::kPositions ? edges : edges * q.parents);
    }
  };

  // How the values of one child, [edges][blocks] vectors, fall into sets of rivals: set n begins at n * next and has
  // `count` vectors, `stride` apart. The lanes of a vector are rivals, unless each type of parents competes by itself.
  struct Rivals {
    int64_t sets, next, count, stride;
    bool per_lane;

    static INLINE Rivals of(const Problem& q, int64_t edges) {
      if (q.competition == Competition::kLocal) return {edges, q.blocks, q.blocks, 1, false};
      if (q.competition == Competition::kPositions) return {q.blocks, 1, edges, q.blocks, true};
      return {1, 0, edges * q.blocks, 1, false};
    }
    INLINE Vec sum(Vec x) const { return per_lane ? x : splat(sum_lanes(x)); }
    INLINE Vec max(Vec x) const { return per_lane ? x : splat(max_lanes(x)); }
  };

  // Calls body(pose, activation, child, type, first edge, last edge) for every child that votes for any parent.
  template <class Body>
  static INLINE void for_each_child(const View& view, Body body) {
    const Problem& q = view.q;
    for (int64_t cell = 0; cell < q.cells; ++cell) {
      const Edge *first = q.edges + q.first[cell], *last = q.edges + q.first[cell + 1];
      if (first == last) continue;
      for (int64_t type = 0; type < q.types; ++type) {
        const int64_t child = cell * q.types + type;
        body(view.poses + child * D, view.activations[child], child, type, first, last);
      }
    }
  }

  static void clear(Vec* values, int64_t count) {
    for (int64_t k = 0; k < count; ++k) values[k] = Vec{};
  }

  // The distances of one child's votes from the means of its parents, and its coupling to them, for all edges and
  // blocks. `none` receives its coupling to no parent, for each set of rivals.
  static INLINE void e_step(const View& view, const T* pose, int64_t type, const Edge* first, const Edge* last,
                            const Gaussian* gaussian, Vec* distance, Vec* coupling, Vec* none) {
    const Problem& q = view.q;
    const int64_t blocks = q.blocks;
    Vec* logit = coupling;
    for (const Edge* edge = first; edge < last; ++edge)
      for (int64_t block = 0; block < blocks; ++block, distance += D, ++logit) {
        const Gaussian& g = gaussian[edge->position * blocks + block];
        Vec votes[D];
        view.votes(pose, *edge, type, block, votes);
        Vec even = g.base, odd{};
        UNROLL for (int h = 0; h < D; h += 2) {
          const Vec d = votes[h] - g.mean[h], e = votes[h + 1] - g.mean[h + 1];
          distance[h] = d;
          distance[h + 1] = e;
          even -= g.half_precision[h] * d * d;
          odd -= g.half_precision[h + 1] * e * e;
        }
        *logit = even + odd;
      }
    const Rivals rivals = Rivals::of(q, last - first);
    for (int64_t set = 0; set < rivals.sets; ++set) {
      Vec* own = coupling + set * rivals.next;
      const int64_t all = rivals.count * rivals.stride, stride = rivals.stride;
      Vec top = own[0];
      for (int64_t k = stride; k < all; k += stride) top = larger(top, own[k]);
      Vec most = rivals.max(top);
      if (q.background) most = larger(most, splat(*q.background));
      Vec total{};
      for (int64_t k = 0; k < all; k += stride) {
        own[k] = exp_or_zero(own[k] - most) * view.is_parent((set * rivals.next + k) % blocks);
        total += own[k];
      }
      total = rivals.sum(total);
      if (q.background) {
        none[set] = exp_or_zero(splat(*q.background) - most);
        total += none[set];
      }
      // A lane without a parent has no rivals.
      if (rivals.per_lane) total = total > Vec{} ? total : splat(1);
      const Vec scale = T(1) / total;
      for (int64_t k = 0; k < all; k += stride) own[k] *= scale;
      if (q.background) none[set] *= rivals.per_lane ? scale * view.is_parent(set) : scale;
    }
  }

  // The first M-step, with uniform coupling: one pass for the mean, a second one for the variance about it.
  static void accumulate_mean(const View& view, Moments* sums) {
    const int64_t blocks = view.q.blocks;
    for_each_child(view, [&](const T* pose, T activation, int64_t, int64_t type, const Edge* first, const Edge* last) {
      const T uniform = activation / view.num_parents(last - first);
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block) {
          Moments& s = sums[edge->position * blocks + block];
          const Vec share = uniform * view.is_parent(block);
          Vec votes[D];
          view.votes(pose, *edge, type, block, votes);
          UNROLL for (int h = 0; h < D; ++h) s.first[h] += share * votes[h];
          s.zeroth += share;
        }
    });
  }

  static void accumulate_variance(const View& view, const Gaussian* gaussian, Moments* sums) {
    const int64_t blocks = view.q.blocks;
    for_each_child(view, [&](const T* pose, T activation, int64_t, int64_t type, const Edge* first, const Edge* last) {
      const T uniform = activation / view.num_parents(last - first);
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block) {
          Moments& s = sums[edge->position * blocks + block];
          const Vec share = uniform * view.is_parent(block);
          const Gaussian& g = gaussian[edge->position * blocks + block];
          Vec votes[D];
          view.votes(pose, *edge, type, block, votes);
          UNROLL for (int h = 0; h < D; ++h) {
            const Vec d = votes[h] - g.mean[h];
            s.second[h] += share * d * d;
          }
        }
    });
  }

  // Scratch of one child: for all edges and blocks the distances, the coupling, and the gradient of the logits.
  struct ChildScratch {
    Vec *distance, *coupling, *grad, *none;

    INLINE ChildScratch(const Problem& q, Carver& carver)
        : distance(carver.take<Vec>(q.max_edges * q.blocks * D)),
          coupling(carver.take<Vec>(q.max_edges * q.blocks)),
          grad(carver.take<Vec>(q.max_edges * q.blocks)),
          none(carver.take<Vec>(q.max_edges > q.blocks ? q.max_edges : q.blocks)) {}
  };

  // An E-step and the sums of the M-step that follows, in one pass: moments about the previous mean.
  static void accumulate_moments(const View& view, const Gaussian* gaussian, Moments* sums, const ChildScratch& own) {
    const int64_t blocks = view.q.blocks;
    Vec *distance = own.distance, *coupling = own.coupling;
    for_each_child(view, [&](const T* pose, T activation, int64_t, int64_t type, const Edge* first, const Edge* last) {
      e_step(view, pose, type, first, last, gaussian, distance, coupling, own.none);
      const Vec *d = distance, *c = coupling;
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block, d += D, ++c) {
          Moments& s = sums[edge->position * blocks + block];
          const Vec share = activation * *c;
          s.zeroth += share;
          UNROLL for (int h = 0; h < D; ++h) {
            const Vec part = share * d[h];
            s.first[h] += part;
            s.second[h] += part * d[h];
          }
        }
    });
  }

  // Half of the sum of the logarithms of the variances. The product of four floats cannot overflow a double, so one
  // logarithm serves four of them; the product of four doubles could overflow.
  static INLINE Vec half_log_det(const Unaligned* variance) {
    constexpr int together = sizeof(T) < sizeof(double) ? 4 : 1;
    Vec out{};
    for (int l = 0; l < L; ++l) {
      double sum = 0;
      for (int h = 0; h < D; h += together) {
        double product = variance[h][l];
        for (int k = 1; k < together; ++k) product *= variance[h + k][l];
        sum += std::log(product);
      }
      out[l] = T(0.5 * sum);
    }
    return out;
  }

  static INLINE T log_sigmoid(T x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }
  static INLINE T sigmoid(T x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

  // The Gaussians of a block for the next E-step. A lane without a parent gets the lowest possible base. With a larger
  // one, it could hold the maximum of the softmax for a child far from all parents and reduce its coupling to 0.
  static INLINE void prepare_gaussian(const Problem& q, int64_t iteration, int64_t block, const Saved& saved,
                                      Gaussian& gaussian) {
    const T sharpness = q.sharpness[iteration];
    for (int h = 0; h < D; ++h) {
      gaussian.mean[h] = saved.mean[h];
      gaussian.half_precision[h] = sharpness * (T(0.5) / load(saved.variance[h]));
    }
    for (int l = 0; l < L; ++l) gaussian.base[l] = log_sigmoid(saved.activity[l]) - sharpness * saved.half_log_det[l];
    // The constant of the density is the same for all parents, but not for the background.
    if (q.background) gaussian.base -= sharpness * T(0.5 * D * 1.8378770664093454836);
    gaussian.base = reinterpret_cast<const Vec*>(q.is_parent)[block] > Vec{} ? gaussian.base
                                                                             : splat(std::numeric_limits<T>::lowest());
  }

  // The M-step of one block of parents from its moments about `gaussian.mean`, and the Gaussians for the next E-step.
  static void m_step(const Problem& q, int64_t iteration, int64_t block, const Moments& s, Saved& saved,
                     Gaussian& gaussian) {
    const Vec scale = T(1) / (s.zeroth + q.mass_floor);
    for (int h = 0; h < D; ++h) {
      if (iteration == 0) {
        saved.mean[h] = gaussian.mean[h];
        saved.variance[h] = s.second[h] * scale + q.variance_floor;
        continue;
      }
      Vec mean = (s.first[h] + gaussian.mean[h] * s.zeroth) * scale;
      if (q.momentum != 0) mean = (1 - q.momentum) * mean + q.momentum * gaussian.mean[h];
      saved.mean[h] = mean;
      const Vec moved = load(saved.mean[h]) - gaussian.mean[h];
      const Vec variance = (s.second[h] - moved * (2 * s.first[h] - moved * s.zeroth)) * scale;
      saved.variance[h] = larger(variance, Vec{}) + q.variance_floor;
    }
    saved.mass = s.zeroth;
    saved.half_log_det = half_log_det(saved.variance);
    const Vec beta_u = reinterpret_cast<const Vec*>(q.beta_u)[block];
    const Vec beta_a = reinterpret_cast<const Vec*>(q.beta_a)[block];
    saved.activity =
        q.inverse_temp[iteration] * (beta_a - (T(D) * beta_u + load(saved.half_log_det)) * load(saved.mass));
    prepare_gaussian(q, iteration, block, saved, gaussian);
  }

  struct ForwardScratch {
    Gaussian* gaussian;
    Moments* sums;
    ChildScratch child;

    INLINE ForwardScratch(const Problem& q, Carver& carver)
        : gaussian(carver.take<Gaussian>(q.positions * q.blocks)),
          sums(carver.take<Moments>(q.positions * q.blocks)),
          child(q, carver) {}
  };

  static void forward(const Problem& q, int64_t sample, T* poses, T* activations, T* saved_out, void* scratch) {
    const View view(q, sample);
    const int64_t count = q.positions * q.blocks;
    Saved* saved = reinterpret_cast<Saved*>(saved_out);
    Carver carver(scratch);
    const ForwardScratch own(q, carver);
    Gaussian* gaussian = own.gaussian;
    Moments* sums = own.sums;
    for (int64_t r = 0; r < q.iters; ++r, saved += count) {
      clear(reinterpret_cast<Vec*>(sums), count * int64_t(sizeof(Moments) / sizeof(Vec)));
      if (r == 0) {
        accumulate_mean(view, sums);
        for (int64_t k = 0; k < count; ++k)
          for (int h = 0; h < D; ++h)
            gaussian[k].mean[h] = (1 - q.momentum) * (sums[k].first[h] / (sums[k].zeroth + q.mass_floor));
        accumulate_variance(view, gaussian, sums);
      } else {
        accumulate_moments(view, gaussian, sums, own.child);
      }
      for (int64_t k = 0; k < count; ++k) m_step(q, r, k % q.blocks, sums[k], saved[k], gaussian[k]);
    }
    saved -= count;
    for (int64_t position = 0; position < q.positions; ++position)
      for (int64_t j = 0; j < q.parents; ++j) {
        const Saved& k = saved[position * q.blocks + j / L];
        for (int h = 0; h < D; ++h) *poses++ = k.mean[h][j % L];
        *activations++ = sigmoid(k.activity[j % L]);
      }
  }

  // From the gradients of a block's mean and variance, in `to`, and activity to that of the shares of its children.
  // `previous` is the block in the iteration before, or null in the first one, where the previous mean is zero.
  template <bool kMomentum>
  static void backward_m_step(const Problem& q, int64_t iteration, int64_t block, const Saved& saved,
                              const Saved* previous, Vec activity, ShareGradient& to, T* grad_betas) {
    const Vec mass = load(saved.mass);
    const Vec scale = T(1) / (mass + q.mass_floor);
    const Vec beta_u = reinterpret_cast<const Vec*>(q.beta_u)[block];
    const Vec beta_a = q.inverse_temp[iteration] * activity;
    const Vec cost = Vec{} - beta_a;
    Vec* betas = reinterpret_cast<Vec*>(grad_betas);
    betas[block] += T(D) * cost * mass;
    betas[q.blocks + block] += beta_a;
    Vec constant = cost * (T(D) * beta_u + load(saved.half_log_det));
    for (int h = 0; h < D; ++h) {
      const Vec variance = to.variance[h] + T(0.5) * cost * mass / load(saved.variance[h]);
      if constexpr (!kMomentum) {
        const Vec mean = to.mean[h] - 2 * q.mass_floor * scale * load(saved.mean[h]) * variance;
        to.mean[h] = scale * mean;
      } else {
        // The mean of the children themselves, before the previous mean is mixed in.
        const Vec now = load(saved.mean[h]), old = previous ? load(previous->mean[h]) : Vec{};
        const Vec plain = (now - q.momentum * old) / (1 - q.momentum);
        const Vec apart = plain * (mass + q.mass_floor) - now * mass;
        to.mean[h] = scale * (1 - q.momentum) * (to.mean[h] - 2 * scale * apart * variance);
        constant += to.mean[h] * (now - plain);
      }
      to.variance[h] = scale * variance;
      constant -= to.variance[h] * (load(saved.variance[h]) - q.variance_floor);
    }
    to.constant = constant;
  }

  static INLINE Vec share_gradient(const ShareGradient& of, const Vec* votes, const Unaligned* mean) {
    Vec even = of.constant, odd{};
    UNROLL for (int h = 0; h < D; h += 2) {
      const Vec d = votes[h] - load(mean[h]), e = votes[h + 1] - load(mean[h + 1]);
      even += d * (of.mean[h] + of.variance[h] * d);
      odd += e * (of.mean[h + 1] + of.variance[h + 1] * e);
    }
    return even + odd;
  }

  // Backward through one E-step: writes its shares and the gradients of its logits, and sums the latter for the
  // parents.
  static void backward_e_step(const View& view, const Gaussian* before, const Saved* now,
                              const ShareGradient* share_grads, Moments* sums, Vec* shares, Vec* logits,
                              const EmGradients<T>& to, const ChildScratch& own) {
    const Problem& q = view.q;
    const int64_t blocks = q.blocks;
    Vec& grad_background = reinterpret_cast<Vec*>(to.betas)[2 * blocks];
    Vec *distance = own.distance, *coupling = own.coupling, *grads = own.grad;
    for_each_child(view,
                   [&](const T* pose, T activation, int64_t child, int64_t type, const Edge* first, const Edge* last) {
                     e_step(view, pose, type, first, last, before, distance, coupling, own.none);
                     const Vec* d = distance;
                     Vec* grad = grads;
                     for (const Edge* edge = first; edge < last; ++edge)
                       for (int64_t block = 0; block < blocks; ++block, d += D, ++grad) {
                         const int64_t at = edge->position * blocks + block;
                         Vec votes[D];
                         UNROLL for (int h = 0; h < D; ++h) votes[h] = d[h] + before[at].mean[h];
                         *grad = share_gradient(share_grads[at], votes, now[at].mean);
                       }
                     const Rivals rivals = Rivals::of(q, last - first);
                     T total{};
                     for (int64_t set = 0; set < rivals.sets; ++set) {
                       const int64_t begin = set * rivals.next, end = begin + rivals.count * rivals.stride;
                       Vec sum{};
                       for (int64_t i = begin; i < end; i += rivals.stride) sum += coupling[i] * grads[i];
                       const Vec mean = rivals.sum(sum);
                       total += rivals.per_lane ? sum_lanes(mean) : mean[0];
                       for (int64_t i = begin; i < end; i += rivals.stride)
                         grads[i] = activation * coupling[i] * (grads[i] - mean);
                       if (!q.background) continue;
                       const Vec lost = activation * own.none[set] * mean;
                       if (rivals.per_lane)
                         grad_background -= lost;
                       else
                         grad_background[0] -= lost[0];
                     }
                     to.activations[child] += total;
                     d = distance;
                     grad = grads;
                     const Vec* c = coupling;
                     for (const Edge* edge = first; edge < last; ++edge)
                       for (int64_t block = 0; block < blocks; ++block, d += D, ++grad, ++c) {
                         Moments& s = sums[edge->position * blocks + block];
                         *shares++ = activation * *c;
                         *logits++ = *grad;
                         s.zeroth += *grad;
                         UNROLL for (int h = 0; h < D; ++h) {
                           const Vec part = *grad * d[h];
                           s.first[h] += part;
                           s.second[h] += part * d[h];
                         }
                       }
                   });
  }

  // Gradients of the votes from all iterations at once, and from them those of poses and weight. Also the gradient of
  // the activations through the uniform shares of the first iteration.
  static void backward_votes(const View& view, const Saved* saved, const Gaussian* gaussian,
                             const ShareGradient* share_grads, const Vec* shares, const Vec* logits, int64_t stride,
                             const EmGradients<T>& to) {
    const Problem& q = view.q;
    const int64_t blocks = q.blocks, count = q.positions * blocks;
    for_each_child(view, [&](const T* pose, T activation, int64_t child, int64_t type, const Edge* first,
                             const Edge* last) {
      const T uniform = 1 / view.num_parents(last - first);
      Vec own[D] = {};
      Vec total{};
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block, ++shares, ++logits) {
          const int64_t at = edge->position * blocks + block;
          Vec votes[D], grad[D] = {};
          view.votes(pose, *edge, type, block, votes);
          total += view.is_parent(block) * share_gradient(share_grads[at], votes, saved[at].mean);
          for (int64_t r = 0; r < q.iters; ++r) {
            const Saved& k = saved[r * count + at];
            const Gaussian& g = gaussian[r * count + at];
            const ShareGradient& f = share_grads[r * count + at];
            const Vec share = r ? shares[(r - 1) * stride] : activation * uniform * view.is_parent(block);
            const Vec logit = r + 1 < q.iters ? logits[r * stride] : Vec{};
            UNROLL for (int h = 0; h < D; ++h) grad[h] +=
                share * f.mean[h] +
                2 * (votes[h] - load(k.mean[h])) * (share * f.variance[h] - logit * g.half_precision[h]);
          }
          const Vec* w = view.weight(*edge, type, block);
          Vec* grad_w = reinterpret_cast<Vec*>(to.weight) + (w - reinterpret_cast<const Vec*>(q.weight));
          UNROLL for (int r = 0; r < 4; ++r) {
            UNROLL for (int p = 0; p < 4; ++p) own[4 * r + p] +=
                grad[4 * r] * w[4 * p] + grad[4 * r + 1] * w[4 * p + 1] + grad[4 * r + 2] * w[4 * p + 2] +
                grad[4 * r + 3] * w[4 * p + 3];
          }
          UNROLL for (int p = 0; p < 4; ++p) {
            UNROLL for (int c = 0; c < 4; ++c) grad_w[4 * p + c] +=
                pose[p] * grad[c] + pose[4 + p] * grad[4 + c] + pose[8 + p] * grad[8 + c] + pose[12 + p] * grad[12 + c];
          }
        }
      to.activations[child] += uniform * sum_lanes(total);
      T* out = to.poses + child * D;
      for (int h = 0; h < D; ++h) out[h] = sum_lanes(own[h]);
    });
  }

  struct BackwardScratch {
    Gaussian* gaussian;          // [R][positions][blocks]
    ShareGradient* share_grads;  // the same
    Moments* sums;               // [positions][blocks]
    int64_t stride;              // edges * types * blocks
    Vec *shares, *logits;        // [R - 1][stride]
    ChildScratch child;

    INLINE BackwardScratch(const Problem& q, Carver& carver)
        : gaussian(carver.take<Gaussian>(q.iters * q.positions * q.blocks)),
          share_grads(carver.take<ShareGradient>(q.iters * q.positions * q.blocks)),
          sums(carver.take<Moments>(q.positions * q.blocks)),
          stride(q.first[q.cells] * q.types * q.blocks),
          shares(carver.take<Vec>((q.iters - 1) * stride)),
          logits(carver.take<Vec>((q.iters - 1) * stride)),
          child(q, carver) {}
  };

  static void backward(const Problem& q, int64_t sample, const T* saved_in, const T* grad_poses,
                       const T* grad_activations, const EmGradients<T>& to, void* scratch) {
    const View view(q, sample);
    const int64_t count = q.positions * q.blocks, R = q.iters;
    const Saved* saved = reinterpret_cast<const Saved*>(saved_in);
    Carver carver(scratch);
    const BackwardScratch own(q, carver);
    const auto m_step_gradient = q.momentum == 0 ? backward_m_step<false> : backward_m_step<true>;
    const int64_t stride = own.stride;
    Gaussian* gaussian = own.gaussian;
    ShareGradient* share_grads = own.share_grads;
    Moments* sums = own.sums;
    Vec *shares = own.shares, *logits = own.logits;
    for (int64_t k = 0; k < q.cells * q.types; ++k) to.activations[k] = 0;
    for (int64_t k = 0; k < q.cells * q.types * D; ++k) to.poses[k] = 0;
    for (int64_t k = 0; k < R * count; ++k) prepare_gaussian(q, k / count, k % q.blocks, saved[k], gaussian[k]);
    for (int64_t k = 0; k < count; ++k) {
      ShareGradient& f = share_grads[(R - 1) * count + k];
      const Saved& last = saved[(R - 1) * count + k];
      const int64_t position = k / q.blocks, block = k % q.blocks;
      Vec activity{};
      for (int h = 0; h < D; ++h) f.mean[h] = f.variance[h] = Vec{};
      for (int l = 0; l < L && block * L + l < q.parents; ++l) {
        const int64_t j = position * q.parents + block * L + l;
        const T active = sigmoid(last.activity[l]);
        activity[l] = grad_activations[j] * active * (1 - active);
        for (int h = 0; h < D; ++h) f.mean[h][l] = grad_poses[j * D + h];
      }
      m_step_gradient(q, R - 1, block, last, R > 1 ? &last - count : nullptr, activity, f, to.betas);
    }
    for (int64_t r = R - 1; r > 0; --r) {
      const Gaussian* before = gaussian + (r - 1) * count;
      clear(reinterpret_cast<Vec*>(sums), count * int64_t(sizeof(Moments) / sizeof(Vec)));
      backward_e_step(view, before, saved + r * count, share_grads + r * count, sums, shares + (r - 1) * stride,
                      logits + (r - 1) * stride, to, own.child);
      for (int64_t k = 0; k < count; ++k) {
        const Saved& old = saved[(r - 1) * count + k];
        ShareGradient& f = share_grads[(r - 1) * count + k];
        Vec activity{};
        for (int l = 0; l < L; ++l) activity[l] = sums[k].zeroth[l] * sigmoid(-old.activity[l]);
        for (int h = 0; h < D; ++h) {
          const Vec half = before[k].half_precision[h], precision = 2 * (T(0.5) / load(old.variance[h]));
          f.mean[h] = 2 * half * sums[k].first[h];
          f.variance[h] = half * (precision * sums[k].second[h] - sums[k].zeroth);
          if (q.momentum == 0) continue;
          // Of the gradient of the later mean, before it was scaled for the shares.
          const Vec mass = load(saved[r * count + k].mass) + q.mass_floor;
          f.mean[h] += q.momentum / (1 - q.momentum) * mass * share_grads[r * count + k].mean[h];
        }
        m_step_gradient(q, r - 1, k % q.blocks, old, r > 1 ? &old - count : nullptr, activity, f, to.betas);
      }
    }
    backward_votes(view, saved, gaussian, share_grads, shares, logits, stride, to);
  }

  static int64_t saved_size(const Problem& q) {
    return q.iters * q.positions * q.blocks * int64_t(sizeof(Saved) / sizeof(T));
  }

  static int64_t scratch_bytes(const Problem& q, bool backward) {
    Carver carver;
    if (backward)
      BackwardScratch(q, carver);
    else
      ForwardScratch(q, carver);
    return carver.used();
  }

  static const EmKernels<T>* table() {
    static constexpr EmKernels<T> kernels = {L, forward, backward, saved_size, scratch_bytes};
    return &kernels;
  }
};

}  // namespace

template <>
const EmKernels<float>* EmTables<float>::INSTRUCTION_SET() {
  return Em<float>::table();
}
template <>
const EmKernels<double>* EmTables<double>::INSTRUCTION_SET() {
  return Em<double>::table();
}

}  // namespace torchcaps
