// Gaussian routing for one instruction set.
#include <cmath>

#include "gaussian.h"
#include "kernels.inl"

namespace torchcaps {
namespace {

template <class T>
struct Gaussian : GridPass<T> {
  using Base = GridPass<T>;
  using Problem = GaussianProblem<T>;
  using typename Base::Cells;
  using typename Base::Child;
  using typename Base::Unaligned;
  using typename Base::Vec;
  static constexpr int L = Base::L;

  // The record of one parent: see GaussianKernels. Not templates, whose arguments lose the attributes of vector types.
  struct Record {
    Vec *first, *second, &last;
  };
  struct ConstRecord {
    const Vec *first, *second, &last;
  };
  static INLINE Record record(const Problem& q, T* all, int64_t parent) {
    const int64_t D = q.grid.out_dim();
    Vec* at = reinterpret_cast<Vec*>(all) + parent * q.record();
    return {at, at + D, at[2 * D]};
  }
  static INLINE ConstRecord record(const Problem& q, const T* all, int64_t parent) {
    const int64_t D = q.grid.out_dim();
    const Vec* at = reinterpret_cast<const Vec*>(all) + parent * q.record();
    return {at, at + D, at[2 * D]};
  }

  // What is saved of a parent and iteration. It is memory of the caller, who may return it at another address, so it
  // must not assume alignment. `level` is half of the log-determinant, or E[ln det] of the precision.
  struct Saved {
    Unaligned *mean, *variance, &mass, &level, &activity;
  };
  struct ConstSaved {
    const Unaligned *mean, *variance, &mass, &level, &activity;
  };
  static INLINE Saved saved_of(const Problem& q, T* all, int64_t parent) {
    const int64_t D = q.grid.out_dim();
    Unaligned* at = reinterpret_cast<Unaligned*>(all) + parent * q.saved();
    return {at, at + D, at[2 * D], at[2 * D + 1], at[2 * D + 2]};
  }
  static INLINE ConstSaved saved_of(const Problem& q, const T* all, int64_t parent) {
    const int64_t D = q.grid.out_dim();
    const Unaligned* at = reinterpret_cast<const Unaligned*>(all) + parent * q.saved();
    return {at, at + D, at[2 * D], at[2 * D + 1], at[2 * D + 2]};
  }

  // Scratch of one child: for all its parents the votes or their distances to a mean, the coupling, and gradients.
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

  static void accumulate_first(const Problem& q, const CellBlock& block, T* moments, void* scratch) {
    const Grid<T>& grid = q.grid;
    Carver carver(scratch);
    const ChildScratch own(grid, carver);
    Base::for_each_child(grid, block, own.cells, [&](const Child& child) {
      const Vec share = child.activation * Base::uniform_coupling(grid, child.edges());
      Base::for_each_parent(grid, child, [&](int64_t parent, const T* matrix, int64_t, int64_t kernel) {
        const Record s = record(q, moments, parent);
        s.last += share;
        Base::vote_blocks(grid, child.pose, matrix, kernel, Base::splat(T(1)),
                          [&](auto n, int64_t d, const Vec* votes) INLINE_LAMBDA {
                            for (int k = 0; k < decltype(n)::value; ++k) s.first[d + k] += share * votes[k];
                          });
      });
    });
  }

  static void accumulate_second(const Problem& q, const CellBlock& block, const T* gaussian, T* moments,
                                void* scratch) {
    const Grid<T>& grid = q.grid;
    Carver carver(scratch);
    const ChildScratch own(grid, carver);
    Base::for_each_child(grid, block, own.cells, [&](const Child& child) {
      const Vec share = child.activation * Base::uniform_coupling(grid, child.edges());
      Base::for_each_parent(grid, child, [&](int64_t parent, const T* matrix, int64_t, int64_t kernel) {
        const Record s = record(q, moments, parent);
        const ConstRecord g = record(q, gaussian, parent);
        s.last += share;
        Base::vote_blocks(grid, child.pose, matrix, kernel, Base::splat(T(1)),
                          [&](auto n, int64_t d, const Vec* votes) INLINE_LAMBDA {
                            for (int k = 0; k < decltype(n)::value; ++k) {
                              const Vec apart = votes[k] - g.first[d + k];
                              s.second[d + k] += share * apart * apart;
                            }
                          });
      });
    });
  }

  // The distances of one child's votes from the means of its parents, and its coupling to them.
  static INLINE void e_step(const Problem& q, const Child& child, const T* gaussian, const ChildScratch& own) {
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim();
    Base::for_each_parent(grid, child, [&](int64_t parent, const T* matrix, int64_t k, int64_t kernel) {
      const ConstRecord g = record(q, gaussian, parent);
      Vec even = g.last, odd{};
      Vec* distance = own.votes + k * D;
      Base::vote_blocks(grid, child.pose, matrix, kernel, Base::splat(T(1)),
                        [&](auto n, int64_t d, const Vec* votes) INLINE_LAMBDA {
                          constexpr int N = decltype(n)::value;
                          for (int i = 0; i < N; ++i) {
                            const Vec apart = votes[i] - g.first[d + i];
                            distance[d + i] = apart;
                            (i % 2 ? odd : even) -= g.second[d + i] * apart * apart;
                          }
                        });
      own.coupling[k] = even + odd;
    });
    Base::softmax(grid, child.edges(), q.background, own.coupling, own.none);
  }

  // moments += factor * (d, d^2, 1) for one parent.
  static INLINE void add_moments(const Record& s, Vec factor, const Vec* distance, int64_t size) {
    s.last += factor;
    for (int64_t d = 0; d < size; ++d) {
      const Vec part = factor * distance[d];
      s.first[d] += part;
      s.second[d] += part * distance[d];
    }
  }

  static void accumulate_moments(const Problem& q, const CellBlock& block, const T* gaussian, T* moments,
                                 void* scratch) {
    const int64_t D = q.grid.out_dim();
    Carver carver(scratch);
    const ChildScratch own(q.grid, carver);
    Base::for_each_child(q.grid, block, own.cells, [&](const Child& child) {
      e_step(q, child, gaussian, own);
      Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        add_moments(record(q, moments, parent), child.activation * own.coupling[k], own.votes + k * D, D);
      });
    });
  }

  static void accumulate_logit_gradients(const Problem& q, const CellBlock& block, const T* gaussian, const T* now,
                                         const T* share_gradient, T* moments, void* scratch) {
    const int64_t D = q.grid.out_dim();
    Carver carver(scratch);
    const ChildScratch own(q.grid, carver);
    Base::for_each_child(q.grid, block, own.cells, [&](const Child& child) {
      e_step(q, child, gaussian, own);
      Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        const ConstRecord f = record(q, share_gradient, parent), before = record(q, gaussian, parent),
                          after = record(q, now, parent);
        const Vec* distance = own.votes + k * D;
        Vec sum[2] = {f.last, Vec{}};
        for (int64_t d = 0; d < D; ++d) {
          const Vec apart = distance[d] + (before.first[d] - after.first[d]);
          sum[d % 2] += apart * (f.first[d] + f.second[d] * apart);
        }
        own.grad[k] = sum[0] + sum[1];
      });
      Vec lost{};
      Base::softmax_backward(q.grid, child.edges(), q.background, child.activation, own.coupling, own.none, own.grad,
                             lost);
      Base::for_each_parent(q.grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        add_moments(record(q, moments, parent), own.grad[k], own.votes + k * D, D);
      });
    });
  }

  // The gradients of the votes of one child from all iterations, in `grad`, and the gradient of its activation.
  static INLINE void child_gradient(const Problem& q, const Child& child, const T* gaussian, const T* share_gradient,
                                    const ChildScratch& own, Vec* grad, Vec& grad_activation, Vec& lost) {
    const Grid<T>& grid = q.grid;
    const int64_t D = grid.out_dim(), iteration = grid.all_parents() * q.record() * L;
    const T uniform = Base::uniform_coupling(grid, child.edges());
    const Vec share = child.activation * uniform;
    Vec total{};
    Base::for_each_parent(grid, child, [&](int64_t parent, const T* matrix, int64_t k, int64_t kernel) {
      const ConstRecord g = record(q, gaussian, parent), f = record(q, share_gradient, parent);
      Vec back = f.last;
      Base::vote_blocks(grid, child.pose, matrix, kernel, Base::splat(T(1)),
                        [&](auto n, int64_t d, const Vec* votes) INLINE_LAMBDA {
                          for (int i = 0; i < decltype(n)::value; ++i) {
                            const Vec apart = votes[i] - g.first[d + i], slope = f.second[d + i] * apart;
                            own.votes[k * D + d + i] = votes[i];
                            back += apart * (f.first[d + i] + slope);
                            grad[k * D + d + i] = share * (f.first[d + i] + 2 * slope);
                          }
                        });
      total += back;
    });
    grad_activation += uniform * total;
    for (int64_t r = 1; r < q.iters; ++r) {
      const T *before = gaussian + (r - 1) * iteration, *now = before + iteration, *of = share_gradient + r * iteration;
      Base::for_each_parent(grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        const ConstRecord old = record(q, before, parent), g = record(q, now, parent), f = record(q, of, parent);
        const Vec* vote = own.votes + k * D;
        Vec logit[2] = {old.last, Vec{}}, back[2] = {f.last, Vec{}};
        for (int64_t d = 0; d < D; ++d) {
          const Vec from_old = vote[d] - old.first[d], apart = vote[d] - g.first[d];
          logit[d % 2] -= old.second[d] * from_old * from_old;
          back[d % 2] += apart * (f.first[d] + f.second[d] * apart);
        }
        own.coupling[k] = logit[0] + logit[1];
        own.grad[k] = back[0] + back[1];
      });
      Base::softmax(grid, child.edges(), q.background, own.coupling, own.none);
      grad_activation += Base::softmax_backward(grid, child.edges(), q.background, child.activation, own.coupling,
                                                own.none, own.grad, lost);
      Base::for_each_parent(grid, child, [&](int64_t parent, const T*, int64_t k, int64_t) {
        const ConstRecord old = record(q, before, parent), g = record(q, now, parent), f = record(q, of, parent);
        const Vec *vote = own.votes + k * D, share = child.activation * own.coupling[k], logit = 2 * own.grad[k];
        Vec* out = grad + k * D;
        for (int64_t d = 0; d < D; ++d)
          out[d] += share * (f.first[d] + 2 * f.second[d] * (vote[d] - g.first[d])) -
                    logit * old.second[d] * (vote[d] - old.first[d]);
      });
    }
  }

  struct BackwardScratch {
    ChildScratch child;
    typename Base::GradientScratch gradients;

    INLINE BackwardScratch(const Grid<T>& q, Carver& carver) : child(q, carver), gradients(q, carver) {}
  };

  static void backward_votes(const Problem& q, int64_t first, int64_t last, const T* gaussian, const T* share_gradient,
                             const GridGradients<T>& to, T* grad_background, void* scratch) {
    const int64_t group_size = q.iters * q.grid.all_parents() * q.record() * L;
    Carver carver(scratch);
    const BackwardScratch own(q.grid, carver);
    Vec lost{};
    Base::backward_children(q.grid, first, last, to, own.gradients,
                            [&](int64_t group, const Child& child, Vec* grad, Vec& grad_activation, Vec*) {
                              child_gradient(q, child, gaussian + group * group_size,
                                             share_gradient + group * group_size, own.child, grad, grad_activation,
                                             lost);
                            });
    *reinterpret_cast<Vec*>(grad_background) -= lost;
  }

  template <class Function>
  static INLINE Vec each_lane(Vec x, Function function) {
    for (int l = 0; l < L; ++l) x[l] = function(x[l]);
    return x;
  }
  static INLINE Vec log_sigmoid(Vec x) {
    return each_lane(x, [](T v) { return v < 0 ? v - std::log1p(std::exp(v)) : -std::log1p(std::exp(-v)); });
  }
  static INLINE Vec sigmoid(Vec x) {
    return each_lane(x, [](T v) { return v < 0 ? std::exp(v) / (1 + std::exp(v)) : 1 / (1 + std::exp(-v)); });
  }

  // The sum of the logarithms of some variances. The product of four floats cannot overflow a double, so one logarithm
  // serves four of them; the product of four doubles could overflow.
  static INLINE Vec sum_of_logs(const Unaligned* variance, int64_t size) {
    constexpr int64_t together = sizeof(T) < sizeof(double) ? 4 : 1;
    Vec out{};
    for (int l = 0; l < L; ++l) {
      double sum = 0;
      for (int64_t h = 0; h < size; h += together) {
        double product = variance[h][l];
        for (int64_t k = h + 1; k < h + together && k < size; ++k) product *= variance[k][l];
        sum += std::log(product);
      }
      out[l] = T(sum);
    }
    return out;
  }

  // digamma(x) and its derivative for x > 0: recurrence to x >= 10, then the asymptotic series, to the last digits of a
  // double. The loops are bounded whatever x is.
  static INLINE double digamma(double x) {
    double sum = 0;
    for (int k = 0; k < 10 && x < 10; ++k, x += 1) sum -= 1 / x;
    const double f = 1 / (x * x);
    const double series =
        f * (1. / 12 - f * (1. / 120 - f * (1. / 252 - f * (1. / 240 - f * (1. / 132 - f * (691. / 32760 - f / 12))))));
    return sum + std::log(x) - 0.5 / x - series;
  }
  static INLINE double trigamma(double x) {
    double sum = 0;
    for (int k = 0; k < 10 && x < 10; ++k, x += 1) sum += 1 / (x * x);
    const double f = 1 / (x * x);
    const double series =
        1. / 6 - f * (1. / 30 - f * (1. / 42 - f * (1. / 30 - f * (5. / 66 - f * (691. / 2730 - f * (7. / 6))))));
    return sum + 1 / x + f / 2 + f / x * series;
  }
  static INLINE Vec digammas(Vec x) {
    return each_lane(x, [](T v) { return T(digamma(v)); });
  }
  static INLINE Vec trigammas(Vec x) {
    return each_lane(x, [](T v) { return T(trigamma(v)); });
  }

  static void first_mean(const Problem& q, int64_t position, const T* moments, T* gaussian) {
    for (int64_t j = 0; j < q.grid.parents; ++j) {
      const ConstRecord s = record(q, moments, position * q.grid.parents + j);
      const Record g = record(q, gaussian, position * q.grid.parents + j);
      for (int64_t h = 0; h < q.grid.out_dim(); ++h)
        g.first[h] = (1 - q.momentum) * (s.first[h] / (s.last + q.mass_floor));
    }
  }

  // The mean of a parent and, in place of its variance, the sum over its children of share * (vote - mean)^2, from the
  // moments about the mean in `g`.
  static INLINE void collect(const Problem& q, int64_t iteration, const ConstRecord& s, const Record& g,
                             const Saved& saved) {
    const Vec scale = T(1) / (s.last + q.mass_floor);
    saved.mass = s.last;
    for (int64_t h = 0; h < q.grid.out_dim(); ++h) {
      const Vec old = g.first[h];
      if (iteration == 0) {
        saved.mean[h] = old;
        saved.variance[h] = s.second[h];
        continue;
      }
      Vec mean = (s.first[h] + old * s.last) * scale;
      if (q.momentum != 0) mean = (1 - q.momentum) * mean + q.momentum * old;
      const Vec moved = mean - old;
      saved.mean[h] = mean;
      saved.variance[h] = Base::larger(s.second[h] - moved * (2 * s.first[h] - moved * s.last), Vec{});
    }
  }

  struct EmUpdate {
    static void update(const Problem& q, int64_t iteration, int64_t position, const T* moments, T* saved_,
                       T* gaussian) {
      const int64_t D = q.grid.out_dim();
      for (int64_t j = 0; j < q.grid.parents; ++j) {
        const int64_t parent = position * q.grid.parents + j;
        const Saved saved = saved_of(q, saved_, parent);
        collect(q, iteration, record(q, moments, parent), record(q, gaussian, parent), saved);
        const Vec mass = saved.mass, scale = T(1) / (mass + q.mass_floor);
        for (int64_t h = 0; h < D; ++h) saved.variance[h] = Base::load(saved.variance[h]) * scale + q.variance_floor;
        saved.level = T(0.5) * sum_of_logs(saved.variance, D);
        saved.activity = q.inverse_temp[iteration] * (q.beta_a[j] - (D * q.beta_u[j] + Base::load(saved.level)) * mass);
      }
      restore(q, iteration, position, saved_, gaussian);
    }

    static void restore(const Problem& q, int64_t iteration, int64_t position, const T* saved_, T* gaussian) {
      const int64_t D = q.grid.out_dim();
      const T sharpness = q.sharpness[iteration];
      for (int64_t j = 0; j < q.grid.parents; ++j) {
        const int64_t parent = position * q.grid.parents + j;
        const ConstSaved saved = saved_of(q, saved_, parent);
        const Record g = record(q, gaussian, parent);
        for (int64_t h = 0; h < D; ++h) {
          g.first[h] = saved.mean[h];
          g.second[h] = sharpness * (T(0.5) / Base::load(saved.variance[h]));
        }
        g.last = log_sigmoid(saved.activity) - sharpness * Base::load(saved.level);
        // The constant of the density is the same for all parents, but not for the background.
        if (q.background) g.last -= sharpness * T(0.5 * double(D) * 1.8378770664093454836);
      }
    }

    // The gradients of mean and variance in `f`, and that of the activity.
    static INLINE Vec backward_results(const Problem& q, int64_t parent, const T* saved_, const T* gaussian,
                                       const T* moments, const T* later, const Record& f) {
      const int64_t D = q.grid.out_dim();
      const ConstSaved saved = saved_of(q, saved_, parent);
      if (!moments) {
        const Vec active = sigmoid(saved.activity);
        for (int64_t h = 0; h < D; ++h) f.second[h] = Vec{};
        return f.last * active * (1 - active);
      }
      const ConstRecord s = record(q, moments, parent), g = record(q, gaussian, parent);
      for (int64_t h = 0; h < D; ++h) {
        const Vec half = g.second[h];
        f.first[h] = 2 * half * s.first[h];
        f.second[h] = half * (s.second[h] / Base::load(saved.variance[h]) - s.last);
      }
      if (q.momentum != 0) {
        // Of the gradient of the later mean, before it was scaled for the shares.
        const T* next = saved_ + q.grid.all_parents() * q.saved() * L;
        const Vec mass = Base::load(saved_of(q, next, parent).mass) + q.mass_floor;
        const ConstRecord after = record(q, later, parent);
        for (int64_t h = 0; h < D; ++h) f.first[h] += q.momentum / (1 - q.momentum) * mass * after.first[h];
      }
      return s.last * sigmoid(Vec{} - Base::load(saved.activity));
    }

    static void backward(const Problem& q, int64_t iteration, int64_t position, const T* saved_, const T* gaussian,
                         const T* moments, const T* later, T* share_gradient, T* grad_betas) {
      const int64_t D = q.grid.out_dim(), J = q.grid.parents;
      Vec* betas = reinterpret_cast<Vec*>(grad_betas);
      for (int64_t j = 0; j < J; ++j) {
        const int64_t parent = position * J + j;
        const Record f = record(q, share_gradient, parent);
        const ConstSaved saved = saved_of(q, saved_, parent);
        const Vec activity = backward_results(q, parent, saved_, gaussian, moments, later, f);
        const T* before = iteration ? saved_ - q.grid.all_parents() * q.saved() * L : saved_;
        const ConstSaved previous = saved_of(q, before, parent);
        const Vec mass = saved.mass, scale = T(1) / (mass + q.mass_floor);
        const Vec beta_a = q.inverse_temp[iteration] * activity, cost = Vec{} - beta_a;
        betas[j] += T(D) * cost * mass;
        betas[J + j] += beta_a;
        Vec constant = cost * (D * q.beta_u[j] + Base::load(saved.level));
        for (int64_t h = 0; h < D; ++h) {
          const Vec variance = f.second[h] + T(0.5) * cost * mass / Base::load(saved.variance[h]);
          const Vec mean = saved.mean[h];
          if (q.momentum == 0) {
            f.first[h] = scale * (f.first[h] - 2 * q.mass_floor * scale * mean * variance);
          } else {
            // The mean of the children themselves, before the previous mean is mixed in.
            const Vec old = iteration ? Base::load(previous.mean[h]) : Vec{};
            const Vec plain = (mean - q.momentum * old) / (1 - q.momentum);
            const Vec apart = plain * (mass + q.mass_floor) - mean * mass;
            f.first[h] = scale * (1 - q.momentum) * (f.first[h] - 2 * scale * apart * variance);
            constant += f.first[h] * (mean - plain);
          }
          f.second[h] = scale * variance;
          constant -= f.second[h] * (Base::load(saved.variance[h]) - q.variance_floor);
        }
        f.last = constant;
      }
    }
  };

  struct VariationalUpdate {
    static constexpr double kLogTwo = 0.69314718055994530942, kEntropy = 2.8378770664093454836;  // ln(2 pi e)

    // The sum over the parents of a position of alpha.
    static INLINE Vec all_concentrations(const Problem& q, int64_t position, const T* saved) {
      Vec sum = Base::splat(T(q.grid.parents) * q.concentration);
      for (int64_t j = 0; j < q.grid.parents; ++j)
        sum += Base::load(saved_of(q, saved, position * q.grid.parents + j).mass);
      return sum;
    }

    static void update(const Problem& q, int64_t iteration, int64_t position, const T* moments, T* saved_,
                       T* gaussian) {
      const int64_t D = q.grid.out_dim();
      for (int64_t j = 0; j < q.grid.parents; ++j) {
        const int64_t parent = position * q.grid.parents + j;
        const Saved saved = saved_of(q, saved_, parent);
        collect(q, iteration, record(q, moments, parent), record(q, gaussian, parent), saved);
        for (int64_t h = 0; h < D; ++h) {
          const Vec mean = saved.mean[h];
          saved.variance[h] = Base::load(saved.variance[h]) + q.mass_floor * mean * mean + q.variance_floor;
        }
        const Vec freedom = 2 + Base::load(saved.mass);
        saved.level = T(D) * (digammas(freedom / 2) + T(kLogTwo)) - sum_of_logs(saved.variance, D);
      }
      const Vec all = digammas(all_concentrations(q, position, saved_));
      for (int64_t j = 0; j < q.grid.parents; ++j) {
        const Saved saved = saved_of(q, saved_, position * q.grid.parents + j);
        const Vec log_weight = digammas(q.concentration + Base::load(saved.mass)) - all;
        const Vec weight = each_lane(log_weight, [](T v) { return std::exp(v); });
        saved.activity = q.beta_a[j] - (q.beta_u[j] + entropy(q, saved.level)) * weight;
      }
      restore(q, iteration, position, saved_, gaussian);
    }

    static INLINE Vec entropy(const Problem& q, Vec log_precision) {
      return T(0.5) * (T(q.grid.out_dim() * kEntropy) - log_precision);
    }

    static void restore(const Problem& q, int64_t, int64_t position, const T* saved_, T* gaussian) {
      const int64_t D = q.grid.out_dim();
      const Vec all = digammas(all_concentrations(q, position, saved_));
      for (int64_t j = 0; j < q.grid.parents; ++j) {
        const int64_t parent = position * q.grid.parents + j;
        const ConstSaved saved = saved_of(q, saved_, parent);
        const Record g = record(q, gaussian, parent);
        const Vec mass = saved.mass, half_freedom = T(0.5) * (2 + mass);
        for (int64_t h = 0; h < D; ++h) {
          g.first[h] = saved.mean[h];
          g.second[h] = half_freedom / Base::load(saved.variance[h]);
        }
        const Vec log_weight = digammas(q.concentration + mass) - all;
        g.last = log_weight + T(0.5) * (Base::load(saved.level) - T(D) / (q.mass_floor + mass));
      }
    }

    static void backward(const Problem& q, int64_t, int64_t position, const T* saved_, const T* gaussian,
                         const T* moments, const T*, T* share_gradient, T* grad_betas) {
      const int64_t D = q.grid.out_dim(), J = q.grid.parents;
      Vec* betas = reinterpret_cast<Vec*>(grad_betas);
      const Vec sum = all_concentrations(q, position, saved_), all = digammas(sum);
      Vec grad_all{};
      for (int64_t j = 0; j < J; ++j) {
        const int64_t parent = position * J + j;
        const Record f = record(q, share_gradient, parent);
        const ConstSaved saved = saved_of(q, saved_, parent);
        const Vec mass = saved.mass, strength = mass + q.mass_floor, alpha = mass + q.concentration;
        Vec precision, weight, direct{};  // gradients of E[ln det Lambda], of E[ln pi], and of the mass
        if (moments) {
          const ConstRecord s = record(q, moments, parent), g = record(q, gaussian, parent);
          weight = s.last;
          precision = T(0.5) * s.last;
          direct = T(0.5 * double(D)) * s.last / (strength * strength);
          for (int64_t h = 0; h < D; ++h) {
            const Vec inverse = T(1) / Base::load(saved.variance[h]);
            direct -= T(0.5) * inverse * s.second[h];
            f.first[h] = 2 * g.second[h] * s.first[h];
            f.second[h] = g.second[h] * inverse * s.second[h];
          }
        } else {
          const Vec active = sigmoid(saved.activity), activity = f.last * active * (1 - active);
          const Vec mixing = each_lane(digammas(alpha) - all, [](T v) { return std::exp(v); });
          const Vec cost = q.beta_u[j] + entropy(q, saved.level);
          betas[j] -= mixing * activity;
          betas[J + j] += activity;
          weight = Vec{} - cost * mixing * activity;
          precision = T(0.5) * mixing * activity;
          for (int64_t h = 0; h < D; ++h) f.second[h] = Vec{};
        }
        for (int64_t h = 0; h < D; ++h) {
          f.first[h] /= strength;
          f.second[h] -= precision / Base::load(saved.variance[h]);
        }
        f.last = direct + T(0.5 * double(D)) * precision * trigammas(T(0.5) * (2 + mass)) + weight * trigammas(alpha);
        grad_all += weight;
      }
      const Vec shared = grad_all * trigammas(sum);
      for (int64_t j = 0; j < J; ++j) record(q, share_gradient, position * J + j).last -= shared;
    }
  };

  static void store(const Problem& q, int64_t group, const T* saved_, T* poses, T* activations) {
    const int64_t D = q.grid.out_dim(), all = q.grid.all_parents(), rows = Base::rows_of(q.grid, group);
    for (int64_t parent = 0; parent < all; ++parent) {
      const ConstSaved saved = saved_of(q, saved_, parent);
      const Vec active = sigmoid(saved.activity);
      for (int64_t l = 0; l < rows; ++l) {
        const int64_t at = (group * L + l) * all + parent;
        for (int64_t h = 0; h < D; ++h) poses[at * D + h] = saved.mean[h][l];
        activations[at] = active[l];
      }
    }
  }

  static void load_gradients(const Problem& q, int64_t group, const T* grad_poses, const T* grad_activations,
                             T* share_gradient) {
    const int64_t D = q.grid.out_dim(), all = q.grid.all_parents(), rows = Base::rows_of(q.grid, group);
    for (int64_t parent = 0; parent < all; ++parent) {
      const Record f = record(q, share_gradient, parent);
      for (int64_t h = 0; h < D; ++h) f.first[h] = Vec{};
      f.last = Vec{};
      for (int64_t l = 0; l < rows; ++l) {
        const int64_t at = (group * L + l) * all + parent;
        for (int64_t h = 0; h < D; ++h) f.first[h][l] = grad_poses[at * D + h];
        f.last[l] = grad_activations[at];
      }
    }
  }

  static void reduce(const Problem& q, const T* partials, int64_t count, int64_t stride, T* out) {
    Base::sum_states(partials, count, stride, q.grid.all_parents() * q.record(), out);
  }

  static int64_t scratch_bytes(const Problem& q) {
    Carver carver;
    BackwardScratch(q.grid, carver);
    return carver.used();
  }

  static const GaussianKernels<T>* table() {
    static constexpr GaussianKernels<T> kernels = {L,
                                                   accumulate_first,
                                                   accumulate_second,
                                                   accumulate_moments,
                                                   accumulate_logit_gradients,
                                                   backward_votes,
                                                   first_mean,
                                                   {EmUpdate::update, VariationalUpdate::update},
                                                   {EmUpdate::restore, VariationalUpdate::restore},
                                                   {EmUpdate::backward, VariationalUpdate::backward},
                                                   store,
                                                   load_gradients,
                                                   reduce,
                                                   scratch_bytes};
    return &kernels;
  }
};

}  // namespace

template <>
const GaussianKernels<float>* GaussianTables<float>::INSTRUCTION_SET() {
  return Gaussian<float>::table();
}
template <>
const GaussianKernels<double>* GaussianTables<double>::INSTRUCTION_SET() {
  return Gaussian<double>::table();
}

}  // namespace torchcaps
