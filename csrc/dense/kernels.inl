// The kernels of dense layers for one instruction set. The including file defines INSTRUCTION_SET and VECTOR_BYTES.
#include <cmath>
#include <cstdint>

#include "../common/workspace.h"
#include "kernels.h"

namespace torchcaps {
namespace {

#include "../common/simd.h"

template <class T>
struct Dense {
  using Vec = typename Lanes<T, VECTOR_BYTES>::Vec;
  using Unaligned = typename Lanes<T, VECTOR_BYTES>::Unaligned;
  static constexpr int L = VECTOR_BYTES / sizeof(T);
  // Values of D computed at once: enough to hide the latency of a multiplication, few enough for the registers.
  static constexpr int kBlock = VECTOR_BYTES == 64 ? 16 : 8;
  // The weight gradient is summed in blocks of kSumP x kSumD values, one vector register each.
  static constexpr int kSumD = L < 4 ? L : 4;
  static constexpr int kSumP = L / kSumD;

  static INLINE Vec* vecs(T* p) { return reinterpret_cast<Vec*>(p); }
  static INLINE const Vec* vecs(const T* p) { return reinterpret_cast<const Vec*>(p); }
  static INLINE Vec splat(T x) { return Vec{} + x; }
  static INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }

  // Children whose poses are transposed at once: whole vectors of columns, small compared with the first-level cache.
  static int64_t child_block(const Votes<T>& q) { return q.in_dim >= 64 || q.in_dim < 1 ? 1 : 64 / q.in_dim; }

  static int64_t rows_of(const Votes<T>& q, int64_t group) {
    int64_t left = q.batch - group * L;
    return left < L ? left : L;
  }

  // Columns [first, first + count) of a group's rows of a matrix [B, width], one vector per column. Lanes without a
  // sample are 0.
  static void load_columns(const T* matrix, int64_t width, int64_t rows, int64_t first, int64_t count, Vec* out) {
    int64_t c = 0;
    for (; c + L <= count; c += L) {
      Vec block[L];
      for (int l = 0; l < L; ++l) {
        if (l < rows)
          block[l] = *reinterpret_cast<const Unaligned*>(matrix + l * width + first + c);
        else
          block[l] = Vec{};
      }
      transpose<L>(block);
      for (int l = 0; l < L; ++l) out[c + l] = block[l];
    }
    for (; c < count; ++c) {
      Vec column{};
      for (int64_t l = 0; l < rows; ++l) column[l] = matrix[l * width + first + c];
      out[c] = column;
    }
  }

  static void store_columns(T* matrix, int64_t width, int64_t rows, int64_t first, int64_t count, const Vec* in) {
    int64_t c = 0;
    for (; c + L <= count; c += L) {
      Vec block[L];
      for (int l = 0; l < L; ++l) block[l] = in[c + l];
      transpose<L>(block);
      for (int l = 0; l < L; ++l)
        if (l < rows) *reinterpret_cast<Unaligned*>(matrix + l * width + first + c) = block[l];
    }
    for (; c < count; ++c)
      for (int64_t l = 0; l < rows; ++l) matrix[l * width + first + c] = in[c][l];
  }

  // The samples of a group in one row of a matrix [rows, B], one per lane. Lanes without a sample are 0.
  static INLINE Vec load_lanes(const T* matrix, int64_t batch, int64_t group, int64_t row) {
    const T* from = matrix + row * batch + group * L;
    if ((group + 1) * L <= batch) return *reinterpret_cast<const Unaligned*>(from);
    Vec lanes{};
    for (int64_t l = 0; l < batch - group * L; ++l) lanes[l] = from[l];
    return lanes;
  }

  static INLINE void store_lanes(T* matrix, int64_t batch, int64_t group, int64_t row, Vec lanes) {
    T* to = matrix + row * batch + group * L;
    if ((group + 1) * L <= batch)
      *reinterpret_cast<Unaligned*>(to) = lanes;
    else
      for (int64_t l = 0; l < batch - group * L; ++l) to[l] = lanes[l];
  }

  // votes[k] = sum over p of pose[p] * weight[p][k] for N consecutive values of D.
  template <int N>
  static INLINE void vote(const Vec* pose, const T* weight, int64_t in_dim, int64_t out_dim, Vec* votes) {
    for (int k = 0; k < N; ++k) votes[k] = Vec{};
    for (int64_t p = 0; p < in_dim; ++p) {
      Vec x = pose[p];
      const T* row = weight + p * out_dim;
#pragma GCC unroll 16
      for (int k = 0; k < N; ++k) votes[k] += x * row[k];
    }
  }

  // Calls use(Int<N>, d) for all of D in blocks of constant size N, which the compiler unrolls.
  template <class Use>
  static INLINE void blocks(int64_t out_dim, Use use) {
    int64_t d = 0;
    for (; d + kBlock <= out_dim; d += kBlock) use(Int<kBlock>{}, d);
    if (kBlock > 8 && d + 8 <= out_dim) use(Int<8>{}, d), d += 8;
    if (d + 4 <= out_dim) use(Int<4>{}, d), d += 4;
    if (d + 2 <= out_dim) use(Int<2>{}, d), d += 2;
    if (d < out_dim) use(Int<1>{}, d);
  }

  // Two independent sums hide the latency of the additions.
  template <int N>
  static INLINE Vec dot(const Vec* a, const Vec* b) {
    if (N == 1) return a[0] * b[0];
    Vec even{}, odd{};
#pragma GCC unroll 16
    for (int k = 0; k + 1 < N; k += 2) {
      even += a[k] * b[k];
      odd += a[k + 1] * b[k + 1];
    }
    return even + odd;
  }

  // Softmax over the parents, in place. With `leaky` there is one more parent with logit 0.
  static INLINE void softmax(Vec* x, int64_t parents, bool leaky) {
    Vec top = leaky ? Vec{} : x[0];
    for (int64_t j = 0; j < parents; ++j) top = larger(x[j], top);
    Vec total = leaky ? exp_negative<VECTOR_BYTES>(-top, T{}) : Vec{};
    for (int64_t j = 0; j < parents; ++j) {
      x[j] = exp_negative<VECTOR_BYTES>(x[j] - top, T{});
      total += x[j];
    }
    Vec scale = T(1) / total;
    for (int64_t j = 0; j < parents; ++j) x[j] *= scale;
  }

  // From the gradient of the coupling to the gradient of the logits, in place.
  static INLINE void softmax_backward(const Vec* coupling, Vec* grad, int64_t parents) {
    Vec mean{};
    for (int64_t j = 0; j < parents; ++j) mean += coupling[j] * grad[j];
    for (int64_t j = 0; j < parents; ++j) grad[j] = coupling[j] * (grad[j] - mean);
  }

  static INLINE void add_prior(const Votes<T>& q, const T* prior, int64_t child, Vec* coupling) {
    for (int64_t j = 0; j < q.parents; ++j) coupling[j] += prior[child * q.parents + j];
  }

  // Scratch of the passes over one group.
  struct PassScratch {
    Vec *pose, *votes, *coupling, *grad;

    INLINE PassScratch(const Votes<T>& q, Carver& carver)
        : pose(carver.take<Vec>(child_block(q) * q.in_dim)),
          votes(carver.take<Vec>(q.tile())),
          coupling(carver.take<Vec>(q.parents)),
          grad(carver.take<Vec>(q.parents)) {}
  };

  // Calls use(child, pose [P], weight [J, P, D]) for all children of a block.
  template <class Use>
  static INLINE void for_each_child(const Votes<T>& q, const Block& block, Vec* pose, Use use) {
    const int64_t P = q.in_dim, step = child_block(q), width = q.children * P, rows = rows_of(q, block.group);
    for (int64_t first = block.first; first < block.last; first += step) {
      const int64_t count = first + step < block.last ? step : block.last - first;
      load_columns(q.poses + block.group * L * width, width, rows, first * P, count * P, pose);
      for (int64_t c = 0; c < count; ++c) use(first + c, pose + c * P, q.weight + (first + c) * q.weight_stride);
    }
  }

  static INLINE Vec coupling_of(const Votes<T>&, const Block&, const UniformCoupling<T>&, int64_t) {
    return splat(T(1));
  }
  static INLINE Vec coupling_of(const Votes<T>& q, const Block& block, const GivenCoupling<T>& given, int64_t row) {
    return load_lanes(given.coupling, q.batch, block.group, row);
  }

  // With few samples in a group most lanes would be empty. The entries of a vote are in the lanes then, and the samples
  // take turns. Every sum has the order of the other path, so that a sample has the same bits in any batch.
  static INLINE bool few_samples(const Votes<T>& q, const Block& block) { return 4 * rows_of(q, block.group) <= L; }

  // What the passes over one sample keep, in the scratch for the votes of a whole group.
  struct SampleScratch {
    T *votes, *key, *total;  // [J*D]

    INLINE SampleScratch(const Votes<T>& q, const PassScratch& own)
        : votes(reinterpret_cast<T*>(own.votes)), key(votes + q.tile()), total(key + q.tile()) {}
  };

  // Calls use(sample, scratch) for every sample of a group, between reading and writing its lane of the total.
  template <class Use>
  static INLINE void for_each_sample(const Votes<T>& q, const Block& block, const SampleScratch& own, T* total,
                                     Use use) {
    for (int64_t l = 0; l < rows_of(q, block.group); ++l) {
      for (int64_t k = 0; k < q.tile(); ++k) own.total[k] = total[k * L + l];
      use(l, q.poses + (block.group * L + l) * q.children * q.in_dim);
      for (int64_t k = 0; k < q.tile(); ++k) total[k * L + l] = own.total[k];
    }
  }

  // The votes of one child of one sample for all parents.
  static INLINE void votes_of_sample(const Votes<T>& q, const T* pose, const T* weight, T* votes) {
    const int64_t P = q.in_dim, D = q.out_dim;
    for (int64_t j = 0; j < q.parents; ++j, weight += P * D, votes += D) {
      int64_t d = 0;
      for (; d + L <= D; d += L) {
        Vec sum{};
        for (int64_t p = 0; p < P; ++p) {
          const Vec row = *reinterpret_cast<const Unaligned*>(weight + p * D + d);
          sum += pose[p] * row;
        }
        *reinterpret_cast<Unaligned*>(votes + d) = sum;
      }
      // The loop over p outside: as the inner one, its products could be computed before the sums and rounded apart.
      for (int64_t k = d; k < D; ++k) votes[k] = T(0);
      for (int64_t p = 0; p < P; ++p)
        for (int64_t k = d; k < D; ++k) votes[k] += pose[p] * weight[p * D + k];
    }
  }

  // total += share * votes for one parent of one sample.
  static INLINE void add_vote(int64_t D, T share, const T* votes, T* total) {
    int64_t d = 0;
    for (; d + L <= D; d += L) {
      Unaligned& sum = *reinterpret_cast<Unaligned*>(total + d);
      const Vec vote = *reinterpret_cast<const Unaligned*>(votes + d), before = sum;
      sum = before + share * vote;
    }
    for (; d < D; ++d) total[d] += share * votes[d];
  }

  static INLINE T share_of(const Votes<T>&, const UniformCoupling<T>&, int64_t, int64_t) { return T(1); }
  static INLINE T share_of(const Votes<T>& q, const GivenCoupling<T>& given, int64_t sample, int64_t row) {
    return given.coupling[row * q.batch + sample];
  }

  template <class Coupling>
  static INLINE void accumulate_samples(const Votes<T>& q, const Block& block, const Coupling& coupling, T* total,
                                        const SampleScratch& own) {
    const int64_t J = q.parents, D = q.out_dim;
    for_each_sample(q, block, own, total, [&](int64_t l, const T* poses) INLINE_LAMBDA {
      for (int64_t child = block.first; child < block.last; ++child) {
        votes_of_sample(q, poses + child * q.in_dim, q.weight + child * q.weight_stride, own.votes);
        for (int64_t j = 0; j < J; ++j)
          add_vote(D, share_of(q, coupling, block.group * L + l, child * J + j), own.votes + j * D, own.total + j * D);
      }
    });
  }

  // The product of two vectors of N entries, in the order of `dot`.
  template <int N>
  static INLINE T dot_entries(const T* a, const T* b) {
    if (N == 1) return a[0] * b[0];
    T even{}, odd{};
#pragma GCC unroll 16
    for (int k = 0; k + 1 < N; k += 2) {
      even += a[k] * b[k];
      odd += a[k + 1] * b[k + 1];
    }
    return even + odd;
  }

  // Softmax over the parents of one sample, in place; x has room for whole vectors.
  static INLINE void softmax_of_sample(T* x, int64_t parents, bool leaky) {
    T top = leaky ? T(0) : x[0];
    for (int64_t j = 0; j < parents; ++j) top = x[j] > top ? x[j] : top;
    for (int64_t j = parents; j % L; ++j) x[j] = top;
    T total = leaky ? exp_negative<VECTOR_BYTES>(splat(-top), T{})[0] : T(0);
    for (int64_t j = 0; j < parents; j += L) vecs(x + j)[0] = exp_negative<VECTOR_BYTES>(vecs(x + j)[0] - top, T{});
    for (int64_t j = 0; j < parents; ++j) total += x[j];
    const T scale = T(1) / total;
    for (int64_t j = 0; j < parents; ++j) x[j] *= scale;
  }

  static INLINE void accumulate_softmax_samples(const Votes<T>& q, const Block& block,
                                                const SoftmaxCoupling<T>& softmax_, T* total, const SampleScratch& own,
                                                T* coupling) {
    const int64_t J = q.parents, D = q.out_dim;
    for_each_sample(q, block, own, total, [&](int64_t l, const T* poses) INLINE_LAMBDA {
      for (int64_t k = 0; k < q.tile(); ++k) own.key[k] = softmax_.key[k * L + l];
      for (int64_t child = block.first; child < block.last; ++child) {
        votes_of_sample(q, poses + child * q.in_dim, q.weight + child * q.weight_stride, own.votes);
        for (int64_t j = 0; j < J; ++j) {
          T logit{};
          blocks(D, [&](auto n, int64_t d) INLINE_LAMBDA {
            logit += dot_entries<decltype(n)::value>(own.votes + j * D + d, own.key + j * D + d);
          });
          coupling[j] = logit;
        }
        softmax_of_sample(coupling, J, softmax_.leaky);
        for (int64_t j = 0; j < J; ++j) {
          const T share = softmax_.prior ? coupling[j] + softmax_.prior[child * J + j] : coupling[j];
          add_vote(D, share, own.votes + j * D, own.total + j * D);
        }
      }
    });
  }

  // A coupling that is known before the votes are: each vote is added as soon as it is computed.
  template <class Coupling>
  static void accumulate(const Votes<T>& q, const Block& block, const Coupling& coupling, T* total_, T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim;
    Vec* total = vecs(total_);
    Carver carver(scratch);
    const PassScratch own(q, carver);
    if (few_samples(q, block)) return accumulate_samples(q, block, coupling, total_, SampleScratch(q, own));
    for_each_child(q, block, own.pose, [&](int64_t child, const Vec* pose, const T* weight) INLINE_LAMBDA {
      for (int64_t j = 0; j < J; ++j) {
        const Vec share = coupling_of(q, block, coupling, child * J + j);
        blocks(D, [&](auto n, int64_t d) {
          constexpr int N = decltype(n)::value;
          Vec vote_[N];
          vote<N>(pose, weight + j * P * D + d, P, D, vote_);
          for (int k = 0; k < N; ++k) total[j * D + d + k] += share * vote_[k];
        });
      }
    });
  }

  // The coupling needs the logits of all parents first, so the votes of one child are kept in scratch.
  static void accumulate_softmax(const Votes<T>& q, const Block& block, const SoftmaxCoupling<T>& softmax_, T* total_,
                                 T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim;
    const Vec* key = vecs(softmax_.key);
    Vec* total = vecs(total_);
    Carver carver(scratch);
    const PassScratch own(q, carver);
    Vec *votes = own.votes, *coupling = own.coupling;
    if (few_samples(q, block))
      return accumulate_softmax_samples(q, block, softmax_, total_, SampleScratch(q, own),
                                        reinterpret_cast<T*>(coupling));
    for_each_child(q, block, own.pose, [&](int64_t child, const Vec* pose, const T* weight) INLINE_LAMBDA {
      for (int64_t j = 0; j < J; ++j) {
        Vec logit{};
        blocks(D, [&](auto n, int64_t d) {
          constexpr int N = decltype(n)::value;
          Vec vote_[N];
          vote<N>(pose, weight + j * P * D + d, P, D, vote_);
          logit += dot<N>(vote_, key + j * D + d);
          for (int k = 0; k < N; ++k) votes[j * D + d + k] = vote_[k];
        });
        coupling[j] = logit;
      }
      softmax(coupling, J, softmax_.leaky);
      if (softmax_.prior) add_prior(q, softmax_.prior, child, coupling);
      for (int64_t j = 0; j < J; ++j)
        for (int64_t d = 0; d < D; ++d) total[j * D + d] += coupling[j] * votes[j * D + d];
    });
  }

  static void backward_key(const Votes<T>& q, const Block& block, const Term<T>& term, bool leaky, T* total_,
                           T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim;
    Vec* total = vecs(total_);
    Carver carver(scratch);
    const PassScratch own(q, carver);
    Vec *votes = own.votes, *coupling = own.coupling, *grad = own.grad;
    for_each_child(q, block, own.pose, [&](int64_t, const Vec* pose, const T* weight) INLINE_LAMBDA {
      for (int64_t j = 0; j < J; ++j) {
        Vec logit{}, back{};
        blocks(D, [&](auto n, int64_t d) {
          constexpr int N = decltype(n)::value;
          Vec vote_[N];
          vote<N>(pose, weight + j * P * D + d, P, D, vote_);
          logit += dot<N>(vote_, vecs(term.key) + j * D + d);
          back += dot<N>(vote_, vecs(term.grad_presquash) + j * D + d);
          for (int k = 0; k < N; ++k) votes[j * D + d + k] = vote_[k];
        });
        coupling[j] = logit;
        grad[j] = back;
      }
      softmax(coupling, J, leaky);
      softmax_backward(coupling, grad, J);
      for (int64_t j = 0; j < J; ++j)
        for (int64_t d = 0; d < D; ++d) total[j * D + d] += grad[j] * votes[j * D + d];
    });
  }

  // The coefficients of one child in one group, [2 * count][J]: for each term its logit and the gradient of its
  // coupling. This computes those of parent j.
  static INLINE void logits_and_gradients(const Votes<T>& q, const Vec* pose, const T* weight, int64_t j,
                                          const Term<T>* terms, int count, bool through, Vec* coef) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim;
    for (int t = 0; t < count; ++t) coef[(2 * t) * J + j] = coef[(2 * t + 1) * J + j] = Vec{};
    blocks(D, [&](auto n, int64_t d) {
      constexpr int N = decltype(n)::value;
      Vec vote_[N];
      vote<N>(pose, weight + j * P * D + d, P, D, vote_);
      for (int t = 0; t < count; ++t) {
        if (!terms[t].key) continue;
        coef[(2 * t) * J + j] += dot<N>(vote_, vecs(terms[t].key) + j * D + d);
        if (through) coef[(2 * t + 1) * J + j] += dot<N>(vote_, vecs(terms[t].grad_presquash) + j * D + d);
      }
    });
  }

  // In the coefficients of one child, logits become coupling and gradients of the coupling become those of the logits.
  static INLINE void normalise_coupling(const Votes<T>& q, const Terms<T>& all, const Term<T>* terms, int64_t child,
                                        T* grad_prior, Vec* coef) {
    const int64_t J = q.parents;
    const Vec uniform = splat(T(1) / T(J + (all.leaky ? 1 : 0)));
    for (int t = 0; t < all.count; ++t) {
      Vec* coupling = coef + (2 * t) * J;
      if (terms[t].key) {
        softmax(coupling, J, all.leaky);
        for (int64_t j = 0; grad_prior && j < J; ++j)
          for (int l = 0; l < L; ++l) grad_prior[child * J + j] += coupling[J + j][l];
        if (all.through_coupling) softmax_backward(coupling, coupling + J, J);
        if (all.prior) add_prior(q, all.prior, child, coupling);
      } else {
        for (int64_t j = 0; j < J; ++j) coupling[j] = uniform;
      }
    }
  }

  // The gradient of one child's vote for parent j in one group, [D]: a combination of the terms' tiles.
  static INLINE void vote_gradient(const Votes<T>& q, int64_t j, const Term<T>* terms, int count, bool through,
                                   const Vec* coef, Vec* grad) {
    const int64_t J = q.parents, D = q.out_dim;
    blocks(D, [&](auto n, int64_t d) {
      constexpr int N = decltype(n)::value;
      Vec sum[N];
      for (int k = 0; k < N; ++k) sum[k] = Vec{};
      for (int t = 0; t < count; ++t) {
        const Vec a = coef[(2 * t) * J + j];
        const Vec* x = vecs(terms[t].grad_presquash) + j * D + d;
#pragma GCC unroll 16
        for (int k = 0; k < N; ++k) sum[k] += a * x[k];
        if (!through || !terms[t].key) continue;
        const Vec b = coef[(2 * t + 1) * J + j];
        const Vec* y = vecs(terms[t].key) + j * D + d;
#pragma GCC unroll 16
        for (int k = 0; k < N; ++k) sum[k] += b * y[k];
      }
      for (int k = 0; k < N; ++k) grad[d + k] = sum[k];
    });
  }

  // out[p] += sum over d of grad[d] * weight[p][d], for N consecutive values of P.
  template <int N>
  static INLINE void pose_gradient(const T* weight, int64_t out_dim, const Vec* grad, Vec* out) {
    Vec sum[N];
    for (int k = 0; k < N; ++k) sum[k] = out[k];
    for (int64_t d = 0; d < out_dim; ++d) {
      const Vec g = grad[d];
      const T* column = weight + d;
#pragma GCC unroll 16
      for (int k = 0; k < N; ++k) sum[k] += g * column[k * out_dim];
    }
    for (int k = 0; k < N; ++k) out[k] = sum[k];
  }

  // out[p][d] += sum over groups, rows and lanes of pose[p] * grad[d], for poses [rows, P] and gradients [rows, D].
  static INLINE void weight_gradient(int64_t P, int64_t D, int groups, int64_t rows, const Vec* pose, int64_t pose_step,
                                     const Vec* grad, int64_t grad_step, T* out) {
    const int64_t whole_p = P - P % kSumP, whole_d = D - D % kSumD;
    for (int64_t d = 0; d < whole_d; d += kSumD)
      for (int64_t p = 0; p < whole_p; p += kSumP) {
        Vec sum[L];
        for (int k = 0; k < L; ++k) sum[k] = Vec{};
        for (int g = 0; g < groups; ++g)
          for (int64_t row = 0; row < rows; ++row) {
            const Vec* x = pose + g * pose_step + row * P + p;
            const Vec* y = grad + g * grad_step + row * D + d;
#pragma GCC unroll 16
            for (int a = 0; a < kSumP; ++a)
#pragma GCC unroll 4
              for (int b = 0; b < kSumD; ++b) sum[a * kSumD + b] += x[a] * y[b];
          }
        const Vec result = add_across<L>(sum);
        for (int a = 0; a < kSumP; ++a)
          for (int b = 0; b < kSumD; ++b) out[(p + a) * D + d + b] += result[a * kSumD + b];
      }
    // The remainder: the last values of P for all of D, and the last values of D for the other P.
    for (int64_t p = 0; p < P; ++p)
      for (int64_t d = p < whole_p ? whole_d : 0; d < D; ++d) {
        Vec sum{};
        for (int g = 0; g < groups; ++g)
          for (int64_t row = 0; row < rows; ++row)
            sum += pose[g * pose_step + row * P + p] * grad[g * grad_step + row * D + d];
        T result{};
        for (int l = 0; l < L; ++l) result += sum[l];
        out[p * D + d] += result;
      }
  }

  // Scratch of the passes that compute gradients for several groups at once.
  struct GradientScratch {
    Vec* pose;       // [groups][children of a block][P]
    Vec* pose_grad;  // the same
    Vec* coef;       // [groups][children of a block][2 * count][J]
    Vec* row;        // [groups][D] for the gradients of votes, or [groups][P] for products with grad_totals

    INLINE GradientScratch(const Votes<T>& q, int count, Carver& carver)
        : pose(carver.take<Vec>(kMaxGroupChunk * child_block(q) * q.in_dim)),
          pose_grad(carver.take<Vec>(kMaxGroupChunk * child_block(q) * q.in_dim)),
          coef(carver.take<Vec>(kMaxGroupChunk * child_block(q) * 2 * count * q.parents)),
          row(carver.take<Vec>(kMaxGroupChunk * (q.in_dim > q.out_dim ? q.in_dim : q.out_dim))) {}
  };

  static INLINE void load_poses(const Votes<T>& q, int64_t group, int64_t first, int64_t count, Vec* pose,
                                Vec* pose_grad) {
    const int64_t P = q.in_dim, width = q.children * P;
    load_columns(q.poses + group * L * width, width, rows_of(q, group), first * P, count * P, pose);
    for (int64_t k = 0; k < child_block(q) * P; ++k) pose_grad[k] = Vec{};
  }

  static INLINE void store_poses(const Votes<T>& q, int64_t group, int64_t first, int64_t count, const Vec* pose_grad,
                                 T* out) {
    const int64_t P = q.in_dim, width = q.children * P;
    store_columns(out + group * L * width, width, rows_of(q, group), first * P, count * P, pose_grad);
  }

  // Parents are the outer loop: the data of one parent stay in the first-level cache for a block of children.
  static void backward_softmax(const Votes<T>& q, int64_t first, int64_t last, const Terms<T>& all,
                               const Gradients<T>& to, T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim, step = child_block(q);
    const int64_t groups = (q.batch + L - 1) / L, coefs = 2 * all.count * J;
    const int count = all.count;
    const bool through = all.through_coupling;
    Carver carver(scratch);
    const GradientScratch own(q, count, carver);
    Vec *pose = own.pose, *pose_grad = own.pose_grad, *coef = own.coef, *grad = own.row;
    for (int64_t chunk = 0; chunk < groups; chunk += kMaxGroupChunk) {
      const int here = chunk + kMaxGroupChunk < groups ? kMaxGroupChunk : int(groups - chunk);
      const Term<T>* terms = all.terms + chunk * count;
      for (int64_t block = first; block < last; block += step) {
        const int64_t size = block + step < last ? step : last - block;
        const T* weight = q.weight + block * q.weight_stride;
        for (int g = 0; g < here; ++g) {
          Vec* u = pose + g * step * P;
          load_poses(q, chunk + g, block, size, u, pose_grad + g * step * P);
          Vec* c_own = coef + g * step * coefs;
          // A uniform coupling does not depend on the votes.
          for (int64_t j = 0; j < J && terms[count - 1].key; ++j)
            for (int64_t c = 0; c < size; ++c)
              logits_and_gradients(q, u + c * P, weight + c * q.weight_stride, j, terms + g * count, count, through,
                                   c_own + c * coefs);
          for (int64_t c = 0; c < size; ++c)
            normalise_coupling(q, all, terms + g * count, block + c, to.prior, c_own + c * coefs);
        }
        for (int64_t j = 0; j < J; ++j)
          for (int64_t c = 0; c < size; ++c) {
            const T* w = weight + c * q.weight_stride + j * P * D;
            for (int g = 0; g < here; ++g) {
              vote_gradient(q, j, terms + g * count, count, through, coef + (g * step + c) * coefs, grad + g * D);
              Vec* out = pose_grad + (g * step + c) * P;
              int64_t p = to.poses ? 0 : P;
              for (; p + 8 <= P; p += 8) pose_gradient<8>(w + p * D, D, grad + g * D, out + p);
              for (; p < P; ++p) pose_gradient<1>(w + p * D, D, grad + g * D, out + p);
            }
            if (to.weight)
              weight_gradient(P, D, here, 1, pose + c * P, step * P, grad, D,
                              to.weight + (block + c) * q.weight_stride + j * P * D);
          }
        for (int g = 0; g < here && to.poses; ++g)
          store_poses(q, chunk + g, block, size, pose_grad + g * step * P, to.poses);
      }
    }
  }

  // With a given coupling the gradient of a vote is coupling * grad_total. The product of weight and grad_total gives
  // the gradients of both coupling and pose, so the votes are not needed.
  static void backward_given(const Votes<T>& q, int64_t first, int64_t last, const GivenCoupling<T>& given,
                             const T* grad_totals, const Gradients<T>& to, T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim, step = child_block(q);
    const int64_t groups = (q.batch + L - 1) / L;
    Carver carver(scratch);
    const GradientScratch own(q, 0, carver);
    Vec *pose = own.pose, *pose_grad = own.pose_grad, *rows = own.row;
    for (int64_t chunk = 0; chunk < groups; chunk += kMaxGroupChunk) {
      const int here = chunk + kMaxGroupChunk < groups ? kMaxGroupChunk : int(groups - chunk);
      for (int64_t block = first; block < last; block += step) {
        const int64_t size = block + step < last ? step : last - block;
        for (int g = 0; g < here; ++g)
          load_poses(q, chunk + g, block, size, pose + g * step * P, pose_grad + g * step * P);
        for (int64_t j = 0; j < J; ++j) {
          const Vec* grad = vecs(grad_totals) + chunk * q.tile() + j * D;
          for (int64_t c = 0; c < size; ++c) {
            const int64_t at = (block + c) * q.weight_stride + j * P * D, row = (block + c) * J + j;
            for (int g = 0; g < here; ++g) {
              const Vec* u = pose + (g * step + c) * P;
              const Vec share = load_lanes(given.coupling, q.batch, chunk + g, row);
              Vec* product = rows + g * P;
              for (int64_t p = 0; p < P; ++p) product[p] = Vec{};
              int64_t p = to.poses || to.coupling ? 0 : P;
              for (; p + 8 <= P; p += 8) pose_gradient<8>(q.weight + at + p * D, D, grad + g * q.tile(), product + p);
              for (; p < P; ++p) pose_gradient<1>(q.weight + at + p * D, D, grad + g * q.tile(), product + p);
              Vec back{};
              for (p = 0; p < P; ++p) {
                back += u[p] * product[p];
                pose_grad[(g * step + c) * P + p] += share * product[p];
                product[p] = share * u[p];
              }
              if (to.coupling) store_lanes(to.coupling, q.batch, chunk + g, row, back);
            }
            if (to.weight) weight_gradient(P, D, here, 1, rows, P, grad, q.tile(), to.weight + at);
          }
        }
        for (int g = 0; g < here && to.poses; ++g)
          store_poses(q, chunk + g, block, size, pose_grad + g * step * P, to.poses);
      }
    }
  }

  static void reduce_partials(const Votes<T>& q, const T* partials, int count, int64_t stride, T scale, const T* bias,
                              T* out) {
    for (int64_t k = 0; k < q.tile(); ++k) {
      Vec sum{};
      for (int part = 0; part < count; ++part) sum += vecs(partials + part * stride)[k];
      vecs(out)[k] = sum * scale + (bias ? bias[k] : T(0));
    }
  }

  static INLINE Vec square_root(Vec x) {
    for (int l = 0; l < L; ++l) x[l] = std::sqrt(x[l]);
    return x;
  }

  // With n = |s| and squash(s) = f(n) s: the factor f(n), its derivative, and n, or 1 in place of 0, to divide by.
  struct SquashFactor {
    Vec factor, derivative, safe;

    // f = n / (c + n^2), where c is 1 for the standard form and 0.5 for "half"; f = (1 - exp(-n)) / n for
    // "exponential".
    INLINE SquashFactor(Squash form, Vec square) {
      const Vec length = square_root(square);
      safe = length > T(0) ? length : splat(T(1));
      if (form == Squash::exponential) {
        Vec rest;  // 1 - exp(-n)
        for (int l = 0; l < L; ++l) rest[l] = -std::expm1(-length[l]);
        factor = length == Vec{} ? splat(T(1)) : rest / safe;
        derivative = (T(1) - rest - factor) / safe;
      } else {
        const T constant = form == Squash::half ? T(0.5) : T(1);
        const Vec denominator = square + constant;
        factor = length / denominator;
        derivative = (constant - square) / (denominator * denominator);
      }
    }
  };

  static void squash(const Votes<T>& q, Squash form, const T* presquash, T* poses) {
    for (int64_t j = 0; j < q.parents; ++j) {
      const Vec* s = vecs(presquash) + j * q.out_dim;
      Vec square{};
      for (int64_t d = 0; d < q.out_dim; ++d) square += s[d] * s[d];
      const Vec factor = SquashFactor(form, square).factor;
      for (int64_t d = 0; d < q.out_dim; ++d) vecs(poses)[j * q.out_dim + d] = s[d] * factor;
    }
  }

  // grad_s = f grad + s (s . grad) f' / n.
  static void squash_backward(const Votes<T>& q, Squash form, const T* presquash, const T* grad_poses,
                              T* grad_presquash) {
    for (int64_t j = 0; j < q.parents; ++j) {
      const Vec* s = vecs(presquash) + j * q.out_dim;
      const Vec* g = vecs(grad_poses) + j * q.out_dim;
      Vec square{}, along{};
      for (int64_t d = 0; d < q.out_dim; ++d) {
        square += s[d] * s[d];
        along += s[d] * g[d];
      }
      const SquashFactor f(form, square);
      const Vec slope = f.derivative * along / f.safe;
      for (int64_t d = 0; d < q.out_dim; ++d) vecs(grad_presquash)[j * q.out_dim + d] = f.factor * g[d] + slope * s[d];
    }
  }

  static void load_tile(const Votes<T>& q, int64_t group, const T* rows, T* tile) {
    load_columns(rows + group * L * q.tile(), q.tile(), rows_of(q, group), 0, q.tile(), vecs(tile));
  }

  static void store_tile(const Votes<T>& q, int64_t group, const T* tile, T* rows) {
    store_columns(rows + group * L * q.tile(), q.tile(), rows_of(q, group), 0, q.tile(), vecs(tile));
  }

  static int64_t scratch_bytes(const Votes<T>& q, int count) {
    Carver pass, gradients;
    PassScratch(q, pass);
    GradientScratch(q, count, gradients);
    return pass.used() > gradients.used() ? pass.used() : gradients.used();
  }

  static const DenseKernels<T>* table() {
    static constexpr DenseKernels<T> kernels = {L,
                                                accumulate<UniformCoupling<T>>,
                                                accumulate<GivenCoupling<T>>,
                                                accumulate_softmax,
                                                backward_key,
                                                backward_softmax,
                                                backward_given,
                                                reduce_partials,
                                                squash,
                                                squash_backward,
                                                load_tile,
                                                store_tile,
                                                scratch_bytes};
    return &kernels;
  }
};

}  // namespace

template <>
const DenseKernels<float>* DenseTables<float>::INSTRUCTION_SET() {
  return Dense<float>::table();
}
template <>
const DenseKernels<double>* DenseTables<double>::INSTRUCTION_SET() {
  return Dense<double>::table();
}

}  // namespace torchcaps
