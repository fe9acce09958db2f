// EM routing of one sample, for one instruction set; comes after stages.inl, which brings the vectors.
#include <limits>

#include "em.h"

#define UNROLL _Pragma("GCC unroll 16")

namespace torchcaps {
namespace {

template <class T>
struct EmKernel {
  using Problem = EmProblem<T>;
  using Vec = typename Lanes<T, VECTOR_BYTES>::Vec;
  using Loose = typename Lanes<T, VECTOR_BYTES>::Loose;
  static constexpr int L = VECTOR_BYTES / sizeof(T);
  static constexpr int D = 16;

  // What a block of parents keeps of an iteration for the gradients.
  struct Kept {
    Vec mean[D], variance[D], mass, half_log_det, activity;
  };
  // What the E-step needs of a block: log a_j N(v) = base - sum_h half_precision_h (v_h - mean_h)^2.
  struct Gauss {
    Vec mean[D], half_precision[D], base;
  };
  // Sums over the children of a block, of the distance d to a mean: d, d^2 and 1, weighted.
  struct Sums {
    Vec first[D], second[D], zeroth;
  };
  // What flows back into the share of a child: level + sum_h (mean_h d_h + variance_h d_h^2).
  struct Flow {
    Vec mean[D], variance[D], level;
  };

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

  // exp(x) for x <= 0. What is smaller than e^-60 vanishes beside the mass floor, and would only make subnormal numbers.
  static INLINE Vec exp_or_zero(Vec x) {
    const Vec y = exp_negative<VECTOR_BYTES>(x, T{});
    return x < splat(-60) ? Vec{} : y;
  }

  // The product of a child's pose and a block of weights, both 4x4.
  static INLINE void cast_votes(const T* pose, const Vec* w, Vec* votes) {
    UNROLL for (int r = 0; r < 4; ++r) {
      UNROLL for (int c = 0; c < 4; ++c)
        votes[4 * r + c] = pose[4 * r] * w[c] + pose[4 * r + 1] * w[4 + c] + pose[4 * r + 2] * w[8 + c] +
                           pose[4 * r + 3] * w[12 + c];
    }
  }

  struct View {
    const Problem& q;
    const T* poses;
    const T* activations;

    View(const Problem& problem, int64_t sample)
        : q(problem),
          poses(problem.poses + sample * problem.places * problem.types * D),
          activations(problem.activations + sample * problem.places * problem.types) {}

    INLINE const Vec* weight(const Edge& edge, int64_t type, int64_t block) const {
      const int64_t child = q.shared ? type : edge.kernel * q.types + type;
      return reinterpret_cast<const Vec*>(q.weight) + (child * q.blocks + block) * D;
    }
    INLINE void votes(const T* pose, const Edge& edge, int64_t type, int64_t block, Vec* out) const {
      cast_votes(pose, weight(edge, type, block), out);
      if (!q.offsets) return;
      out[0] += q.offsets[2 * edge.kernel];
      out[1] += q.offsets[2 * edge.kernel + 1];
    }
    INLINE Vec real(int64_t block) const { return reinterpret_cast<const Vec*>(q.real)[block]; }
    // How many parents a child chooses from at first.
    INLINE T choices(int64_t edges) const { return T(q.local ? q.parents : edges * q.parents); }
  };

  // Calls body(pose, activation, child, first edge, last edge) for every child that somebody sees.
  template <class Body>
  static INLINE void each_child(const View& view, Body body) {
    const Problem& q = view.q;
    for (int64_t place = 0; place < q.places; ++place) {
      const Edge *first = q.edges + q.first[place], *last = q.edges + q.first[place + 1];
      if (first == last) continue;
      for (int64_t type = 0; type < q.types; ++type) {
        const int64_t child = place * q.types + type;
        body(view.poses + child * D, view.activations[child], child, type, first, last);
      }
    }
  }

  static void clear(Vec* values, int64_t count) {
    for (int64_t k = 0; k < count; ++k) values[k] = Vec{};
  }

  // The distances of one child's votes from the means of its parents, and its coupling to them, for all edges and blocks.
  static INLINE void couple(const View& view, const T* pose, int64_t type, const Edge* first, const Edge* last,
                            const Gauss* gauss, Vec* apart, Vec* coupling) {
    const Problem& q = view.q;
    const int64_t blocks = q.blocks, step = q.local ? blocks : (last - first) * blocks;
    Vec* logit = coupling;
    for (const Edge* edge = first; edge < last; ++edge)
      for (int64_t block = 0; block < blocks; ++block, apart += D, ++logit) {
        const Gauss& g = gauss[edge->position * blocks + block];
        Vec votes[D];
        view.votes(pose, *edge, type, block, votes);
        Vec even = g.base, odd{};
        UNROLL for (int h = 0; h < D; h += 2) {
          const Vec d = votes[h] - g.mean[h], e = votes[h + 1] - g.mean[h + 1];
          apart[h] = d;
          apart[h + 1] = e;
          even -= g.half_precision[h] * d * d;
          odd -= g.half_precision[h + 1] * e * e;
        }
        *logit = even + odd;
      }
    for (Vec* some = coupling; some < logit; some += step) {
      Vec top = some[0];
      for (int64_t k = 1; k < step; ++k) top = larger(top, some[k]);
      const Vec most = splat(max_lanes(top));
      Vec total{};
      for (int64_t k = 0; k < step; ++k) {
        some[k] = exp_or_zero(some[k] - most) * view.real(k % blocks);
        total += some[k];
      }
      const T scale = T(1) / sum_lanes(total);
      for (int64_t k = 0; k < step; ++k) some[k] *= scale;
    }
  }

  // The first M-step, whose coupling is uniform: the mean in one pass, the variance about it in a second.
  static void gather_mean(const View& view, Sums* sums) {
    const int64_t blocks = view.q.blocks;
    each_child(view, [&](const T* pose, T activation, int64_t, int64_t type, const Edge* first, const Edge* last) {
      const T whole = activation / view.choices(last - first);
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block) {
          Sums& s = sums[edge->position * blocks + block];
          const Vec share = whole * view.real(block);
          Vec votes[D];
          view.votes(pose, *edge, type, block, votes);
          UNROLL for (int h = 0; h < D; ++h) s.first[h] += share * votes[h];
          s.zeroth += share;
        }
    });
  }

  static void gather_variance(const View& view, const Gauss* gauss, Sums* sums) {
    const int64_t blocks = view.q.blocks;
    each_child(view, [&](const T* pose, T activation, int64_t, int64_t type, const Edge* first, const Edge* last) {
      const T whole = activation / view.choices(last - first);
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block) {
          Sums& s = sums[edge->position * blocks + block];
          const Vec share = whole * view.real(block);
          const Gauss& g = gauss[edge->position * blocks + block];
          Vec votes[D];
          view.votes(pose, *edge, type, block, votes);
          UNROLL for (int h = 0; h < D; ++h) {
            const Vec d = votes[h] - g.mean[h];
            s.second[h] += share * d * d;
          }
        }
    });
  }

  // An E-step and the sums of the M-step that follows, in one pass: moments about the old mean.
  static void gather(const View& view, const Gauss* gauss, Sums* sums, Vec* scratch) {
    const int64_t blocks = view.q.blocks;
    Vec *apart = scratch, *coupling = scratch + view.q.most_edges * blocks * D;
    each_child(view, [&](const T* pose, T activation, int64_t, int64_t type, const Edge* first, const Edge* last) {
      couple(view, pose, type, first, last, gauss, apart, coupling);
      const Vec *d = apart, *c = coupling;
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block, d += D, ++c) {
          Sums& s = sums[edge->position * blocks + block];
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

  // Half of the sum of the logarithms of the variances. Four floats at a time are multiplied first: doubles have the room,
  // which they have not for four of their own.
  static INLINE Vec half_log_det(const Vec* variance) {
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

  // A lane without a parent gets the lowest base there is: above the logits of a child far from all its parents it would take
  // the place of their largest, and leave the child without any.
  static INLINE void settle(const Problem& q, int64_t block, const Kept& kept, Gauss& gauss) {
    for (int h = 0; h < D; ++h) {
      gauss.mean[h] = kept.mean[h];
      gauss.half_precision[h] = T(0.5) / kept.variance[h];
    }
    for (int l = 0; l < L; ++l) gauss.base[l] = log_sigmoid(kept.activity[l]) - kept.half_log_det[l];
    gauss.base = reinterpret_cast<const Vec*>(q.real)[block] > Vec{} ? gauss.base : splat(std::numeric_limits<T>::lowest());
  }

  // The M-step of one block of parents from its sums about `gauss.mean`, and the Gaussian for the next E-step.
  static void maximise(const Problem& q, int64_t iteration, int64_t block, const Sums& s, Kept& kept, Gauss& gauss) {
    const Vec scale = T(1) / (s.zeroth + q.mass);
    for (int h = 0; h < D; ++h) {
      if (iteration == 0) {
        kept.mean[h] = gauss.mean[h];
        kept.variance[h] = s.second[h] * scale + q.floor;
        continue;
      }
      kept.mean[h] = (s.first[h] + gauss.mean[h] * s.zeroth) * scale;
      const Vec moved = kept.mean[h] - gauss.mean[h];
      const Vec variance = (s.second[h] - moved * (2 * s.first[h] - moved * s.zeroth)) * scale;
      kept.variance[h] = larger(variance, Vec{}) + q.floor;
    }
    kept.mass = s.zeroth;
    kept.half_log_det = half_log_det(kept.variance);
    const Vec beta_u = reinterpret_cast<const Vec*>(q.beta_u)[block];
    const Vec beta_a = reinterpret_cast<const Vec*>(q.beta_a)[block];
    kept.activity = q.inverse[iteration] * (beta_a - (T(D) * beta_u + kept.half_log_det) * kept.mass);
    settle(q, block, kept, gauss);
  }

  static void forward(const Problem& q, int64_t sample, T* poses, T* activations, T* kept_out, T* scratch) {
    const View view(q, sample);
    const int64_t count = q.positions * q.blocks;
    Kept* kept = reinterpret_cast<Kept*>(kept_out);
    Gauss* gauss = reinterpret_cast<Gauss*>(scratch);
    Sums* sums = reinterpret_cast<Sums*>(gauss + count);
    Vec* rest = reinterpret_cast<Vec*>(sums + count);
    for (int64_t r = 0; r < q.iters; ++r, kept += count) {
      clear(reinterpret_cast<Vec*>(sums), count * int64_t(sizeof(Sums) / sizeof(Vec)));
      if (r == 0) {
        gather_mean(view, sums);
        for (int64_t k = 0; k < count; ++k)
          for (int h = 0; h < D; ++h) gauss[k].mean[h] = sums[k].first[h] / (sums[k].zeroth + q.mass);
        gather_variance(view, gauss, sums);
      } else {
        gather(view, gauss, sums, rest);
      }
      for (int64_t k = 0; k < count; ++k) maximise(q, r, k % q.blocks, sums[k], kept[k], gauss[k]);
    }
    kept -= count;
    for (int64_t position = 0; position < q.positions; ++position)
      for (int64_t j = 0; j < q.parents; ++j) {
        const Kept& k = kept[position * q.blocks + j / L];
        for (int h = 0; h < D; ++h) *poses++ = k.mean[h][j % L];
        *activations++ = sigmoid(k.activity[j % L]);
      }
  }

  // From the gradients of a block's mean, variance and activity to what flows back into the shares of its children.
  static void start_flow(const Problem& q, int64_t iteration, int64_t block, const Kept& kept, Vec activity, Flow& flow,
                         T* grad_betas) {
    const Vec scale = T(1) / (kept.mass + q.mass);
    const Vec beta_u = reinterpret_cast<const Vec*>(q.beta_u)[block];
    const Vec beta_a = q.inverse[iteration] * activity;
    const Vec cost = Vec{} - beta_a;
    Vec* betas = reinterpret_cast<Vec*>(grad_betas);
    betas[block] += T(D) * cost * kept.mass;
    betas[q.blocks + block] += beta_a;
    flow.level = cost * (T(D) * beta_u + kept.half_log_det);
    for (int h = 0; h < D; ++h) {
      const Vec variance = flow.variance[h] + T(0.5) * cost * kept.mass / kept.variance[h];
      const Vec mean = flow.mean[h] - 2 * q.mass * scale * kept.mean[h] * variance;
      flow.mean[h] = scale * mean;
      flow.variance[h] = scale * variance;
      flow.level -= flow.variance[h] * (kept.variance[h] - q.floor);
    }
  }

  static INLINE Vec back_to_share(const Flow& flow, const Vec* votes, const Vec* mean) {
    Vec even = flow.level, odd{};
    UNROLL for (int h = 0; h < D; h += 2) {
      const Vec d = votes[h] - mean[h], e = votes[h + 1] - mean[h + 1];
      even += d * (flow.mean[h] + flow.variance[h] * d);
      odd += e * (flow.mean[h + 1] + flow.variance[h + 1] * e);
    }
    return even + odd;
  }

  // Back through one E-step: its shares and the gradients of its logits are written down, and summed for the parents.
  static void reverse(const View& view, const Gauss* before, const Kept* now, const Flow* flow, Sums* sums, Vec* shares,
                      Vec* logits, T* grad_activations, Vec* scratch) {
    const Problem& q = view.q;
    const int64_t blocks = q.blocks;
    Vec *apart = scratch, *coupling = scratch + q.most_edges * blocks * D, *grads = coupling + q.most_edges * blocks;
    each_child(view, [&](const T* pose, T activation, int64_t child, int64_t type, const Edge* first, const Edge* last) {
      couple(view, pose, type, first, last, before, apart, coupling);
      const Vec* d = apart;
      Vec* grad = grads;
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block, d += D, ++grad) {
          const int64_t at = edge->position * blocks + block;
          Vec votes[D];
          UNROLL for (int h = 0; h < D; ++h) votes[h] = d[h] + before[at].mean[h];
          *grad = back_to_share(flow[at], votes, now[at].mean);
        }
      const int64_t all = (last - first) * blocks, step = q.local ? blocks : all;
      T total{};
      for (int64_t k = 0; k < all; k += step) {
        Vec sum{};
        for (int64_t i = k; i < k + step; ++i) sum += coupling[i] * grads[i];
        const T mean = sum_lanes(sum);
        total += mean;
        for (int64_t i = k; i < k + step; ++i) grads[i] = activation * coupling[i] * (grads[i] - mean);
      }
      grad_activations[child] += total;
      d = apart;
      grad = grads;
      const Vec* c = coupling;
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block, d += D, ++grad, ++c) {
          Sums& s = sums[edge->position * blocks + block];
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

  // The gradients of votes from all iterations together, taken on to poses and weight; and the first iteration's share.
  static void finish(const View& view, const Kept* kept, const Gauss* gauss, const Flow* flow, const Vec* shares,
                     const Vec* logits, int64_t pace, T* grad_poses, T* grad_activations, T* grad_weight) {
    const Problem& q = view.q;
    const int64_t blocks = q.blocks, count = q.positions * blocks;
    each_child(view, [&](const T* pose, T activation, int64_t child, int64_t type, const Edge* first, const Edge* last) {
      const T uniform = 1 / view.choices(last - first);
      Vec own[D] = {};
      Vec total{};
      for (const Edge* edge = first; edge < last; ++edge)
        for (int64_t block = 0; block < blocks; ++block, ++shares, ++logits) {
          const int64_t at = edge->position * blocks + block;
          Vec votes[D], grad[D] = {};
          view.votes(pose, *edge, type, block, votes);
          total += view.real(block) * back_to_share(flow[at], votes, kept[at].mean);
          for (int64_t r = 0; r < q.iters; ++r) {
            const Kept& k = kept[r * count + at];
            const Gauss& g = gauss[r * count + at];
            const Flow& f = flow[r * count + at];
            const Vec share = r ? shares[(r - 1) * pace] : activation * uniform * view.real(block);
            const Vec logit = r + 1 < q.iters ? logits[r * pace] : Vec{};
            UNROLL for (int h = 0; h < D; ++h)
              grad[h] += share * f.mean[h] +
                         2 * (votes[h] - k.mean[h]) * (share * f.variance[h] - logit * g.half_precision[h]);
          }
          const Vec* w = view.weight(*edge, type, block);
          Vec* grad_w = reinterpret_cast<Vec*>(grad_weight) + (w - reinterpret_cast<const Vec*>(q.weight));
          UNROLL for (int r = 0; r < 4; ++r) {
            UNROLL for (int p = 0; p < 4; ++p)
              own[4 * r + p] += grad[4 * r] * w[4 * p] + grad[4 * r + 1] * w[4 * p + 1] + grad[4 * r + 2] * w[4 * p + 2] +
                                grad[4 * r + 3] * w[4 * p + 3];
          }
          UNROLL for (int p = 0; p < 4; ++p) {
            UNROLL for (int c = 0; c < 4; ++c)
              grad_w[4 * p + c] += pose[p] * grad[c] + pose[4 + p] * grad[4 + c] + pose[8 + p] * grad[8 + c] +
                                   pose[12 + p] * grad[12 + c];
          }
        }
      grad_activations[child] += uniform * sum_lanes(total);
      T* out = grad_poses + child * D;
      for (int h = 0; h < D; ++h) out[h] = sum_lanes(own[h]);
    });
  }

  static void backward(const Problem& q, int64_t sample, const T* kept_in, const T* grad_poses, const T* grad_activations,
                       T* grad_child_poses, T* grad_child_activations, T* grad_weight, T* grad_betas, T* scratch) {
    const View view(q, sample);
    const int64_t count = q.positions * q.blocks, R = q.iters;
    const int64_t pace = q.first[q.places] * q.types * q.blocks;
    const Kept* kept = reinterpret_cast<const Kept*>(kept_in);
    Gauss* gauss = reinterpret_cast<Gauss*>(scratch);
    Flow* flow = reinterpret_cast<Flow*>(gauss + R * count);
    Sums* sums = reinterpret_cast<Sums*>(flow + R * count);
    Vec* shares = reinterpret_cast<Vec*>(sums + count);
    Vec* logits = shares + (R - 1) * pace;
    Vec* rest = logits + (R - 1) * pace;
    for (int64_t k = 0; k < q.places * q.types; ++k) grad_child_activations[k] = 0;
    for (int64_t k = 0; k < q.places * q.types * D; ++k) grad_child_poses[k] = 0;
    for (int64_t k = 0; k < R * count; ++k) settle(q, k % q.blocks, kept[k], gauss[k]);
    for (int64_t k = 0; k < count; ++k) {
      Flow& f = flow[(R - 1) * count + k];
      const Kept& last = kept[(R - 1) * count + k];
      const int64_t position = k / q.blocks, block = k % q.blocks;
      Vec activity{};
      for (int h = 0; h < D; ++h) f.mean[h] = f.variance[h] = Vec{};
      for (int l = 0; l < L && block * L + l < q.parents; ++l) {
        const int64_t j = position * q.parents + block * L + l;
        const T active = sigmoid(last.activity[l]);
        activity[l] = grad_activations[j] * active * (1 - active);
        for (int h = 0; h < D; ++h) f.mean[h][l] = grad_poses[j * D + h];
      }
      start_flow(q, R - 1, block, last, activity, f, grad_betas);
    }
    for (int64_t r = R - 1; r > 0; --r) {
      const Gauss* before = gauss + (r - 1) * count;
      clear(reinterpret_cast<Vec*>(sums), count * int64_t(sizeof(Sums) / sizeof(Vec)));
      reverse(view, before, kept + r * count, flow + r * count, sums, shares + (r - 1) * pace, logits + (r - 1) * pace,
              grad_child_activations, rest);
      for (int64_t k = 0; k < count; ++k) {
        const Kept& old = kept[(r - 1) * count + k];
        Flow& f = flow[(r - 1) * count + k];
        Vec activity{};
        for (int l = 0; l < L; ++l) activity[l] = sums[k].zeroth[l] * sigmoid(-old.activity[l]);
        for (int h = 0; h < D; ++h) {
          const Vec half = before[k].half_precision[h];
          f.mean[h] = 2 * half * sums[k].first[h];
          f.variance[h] = half * (2 * half * sums[k].second[h] - sums[k].zeroth);
        }
        start_flow(q, r - 1, k % q.blocks, old, activity, f, grad_betas);
      }
    }
    finish(view, kept, gauss, flow, shares, logits, pace, grad_child_poses, grad_child_activations, grad_weight);
  }

  static int64_t kept(const Problem& q) { return q.iters * q.positions * q.blocks * int64_t(sizeof(Kept) / sizeof(T)); }

  static int64_t scratch(const Problem& q, bool backward) {
    const int64_t tile = q.most_edges * q.blocks * (D + 2);
    const int64_t count = q.positions * q.blocks;
    const int64_t sums = count * int64_t(sizeof(Sums) / sizeof(Vec)), gauss = count * int64_t(sizeof(Gauss) / sizeof(Vec));
    if (!backward) return (tile + sums + gauss) * L;
    const int64_t flow = count * int64_t(sizeof(Flow) / sizeof(Vec));
    const int64_t scalars = 2 * (q.iters - 1) * q.first[q.places] * q.types * q.blocks;
    return (tile + sums + q.iters * (gauss + flow) + scalars) * L;
  }

  static const EmStages<T>* stages() {
    static constexpr EmStages<T> table = {L, forward, backward, kept, scratch};
    return &table;
  }
};

}  // namespace

template <>
const EmStages<float>* EmIsa<float>::ISA() {
  return EmKernel<float>::stages();
}
template <>
const EmStages<double>* EmIsa<double>::ISA() {
  return EmKernel<double>::stages();
}

}  // namespace torchcaps
