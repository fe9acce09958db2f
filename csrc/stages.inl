// The work on one group of samples, for one instruction set: whoever includes this has set VECTOR_BYTES and ISA.
#include <cmath>
#include <cstdint>

#include "stages.h"

namespace torchcaps {
namespace {

#include "vec.h"

template <class T>
struct Kernel {
  using Vec = typename Lanes<T, VECTOR_BYTES>::Vec;
  using Loose = typename Lanes<T, VECTOR_BYTES>::Loose;
  static constexpr int L = VECTOR_BYTES / sizeof(T);
  // How many values of D are worked on at once: enough to hide a multiplication's latency, few enough for registers.
  static constexpr int kBlock = VECTOR_BYTES == 64 ? 16 : 8;
  // The weight gradient goes in tiles of kTileP x kTileD sums, one per lane.
  static constexpr int kTileD = L < 4 ? L : 4;
  static constexpr int kTileP = L / kTileD;

  static INLINE Vec* vecs(T* p) { return reinterpret_cast<Vec*>(p); }
  static INLINE const Vec* vecs(const T* p) { return reinterpret_cast<const Vec*>(p); }
  static INLINE Vec splat(T x) { return Vec{} + x; }
  static INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }

  // Poses are laid out for this many children at a time: whole vectors of columns, small beside the first-level cache.
  static int64_t child_block(const Problem<T>& q) { return q.in_dim >= 64 ? 1 : 64 / q.in_dim; }

  static int64_t rows_of(const Problem<T>& q, int64_t group) {
    int64_t left = q.batch - group * L;
    return left < L ? left : L;
  }

  // Columns [first, first + count) of a group's rows of a matrix [B, width], one vector per column; 0 for no sample.
  static void load_columns(const T* matrix, int64_t width, int64_t rows, int64_t first, int64_t count, Vec* out) {
    int64_t c = 0;
    for (; c + L <= count; c += L) {
      Vec block[L];
      for (int l = 0; l < L; ++l) {
        if (l < rows)
          block[l] = *reinterpret_cast<const Loose*>(matrix + l * width + first + c);
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
        if (l < rows) *reinterpret_cast<Loose*>(matrix + l * width + first + c) = block[l];
    }
    for (; c < count; ++c)
      for (int64_t l = 0; l < rows; ++l) matrix[l * width + first + c] = in[c][l];
  }

  // A group's part of one row of a matrix [rows, B], one sample per lane; 0 for no sample.
  static INLINE Vec load_lanes(const T* matrix, int64_t batch, int64_t group, int64_t row) {
    const T* from = matrix + row * batch + group * L;
    if ((group + 1) * L <= batch) return *reinterpret_cast<const Loose*>(from);
    Vec lanes{};
    for (int64_t l = 0; l < batch - group * L; ++l) lanes[l] = from[l];
    return lanes;
  }

  static INLINE void store_lanes(T* matrix, int64_t batch, int64_t group, int64_t row, Vec lanes) {
    T* to = matrix + row * batch + group * L;
    if ((group + 1) * L <= batch)
      *reinterpret_cast<Loose*>(to) = lanes;
    else
      for (int64_t l = 0; l < batch - group * L; ++l) to[l] = lanes[l];
  }

  // votes[k] = sum over p of pose[p] * weight[p][k] for N neighbouring values of D.
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

  // Calls use(Int<N>, d) for all of D in blocks that the compiler can unroll.
  template <class Use>
  static INLINE void blocks(int64_t out_dim, Use use) {
    int64_t d = 0;
    for (; d + kBlock <= out_dim; d += kBlock) use(Int<kBlock>{}, d);
    if (kBlock > 8 && d + 8 <= out_dim) use(Int<8>{}, d), d += 8;
    if (d + 4 <= out_dim) use(Int<4>{}, d), d += 4;
    if (d + 2 <= out_dim) use(Int<2>{}, d), d += 2;
    if (d < out_dim) use(Int<1>{}, d);
  }

  // Two sums, so that one addition need not wait for the other.
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

  // Softmax over the parents, in place; leaky counts one more parent with logit 0.
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

  // The gradient of the logits from the gradient of the coupling, in place.
  static INLINE void softmax_backward(const Vec* coupling, Vec* grad, int64_t parents) {
    Vec mean{};
    for (int64_t j = 0; j < parents; ++j) mean += coupling[j] * grad[j];
    for (int64_t j = 0; j < parents; ++j) grad[j] = coupling[j] * (grad[j] - mean);
  }

  static INLINE void add_prior(const Problem<T>& q, int64_t child, Vec* coupling) {
    for (int64_t j = 0; j < q.parents; ++j) coupling[j] += q.prior[child * q.parents + j];
  }

  static void gather(const Problem<T>& q, int64_t group, int64_t first, int64_t last, const T* sums, T* total_,
                     T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim, step = child_block(q), width = q.children * P;
    const int64_t rows = rows_of(q, group);
    Vec* total = vecs(total_);
    Vec* pose = vecs(scratch);
    Vec* votes = pose + step * P;
    Vec* coupling = votes + J * D;
    for (int64_t block = first; block < last; block += step) {
      const int64_t count = block + step < last ? step : last - block;
      load_columns(q.poses + group * L * width, width, rows, block * P, count * P, pose);
      for (int64_t c = 0; c < count; ++c) {
        const T* weight = q.weight + (block + c) * q.weight_stride;
        const Vec* u = pose + c * P;
        if (!sums) {
          for (int64_t j = 0; j < J; ++j) {
            const Vec share = q.share ? load_lanes(q.share, q.batch, group, (block + c) * J + j) : splat(T(1));
            blocks(D, [&](auto n, int64_t d) {
              constexpr int N = decltype(n)::value;
              Vec vote_[N];
              vote<N>(u, weight + j * P * D + d, P, D, vote_);
              for (int k = 0; k < N; ++k) total[j * D + d + k] += share * vote_[k];
            });
          }
          continue;
        }
        for (int64_t j = 0; j < J; ++j) {
          Vec logit{};
          blocks(D, [&](auto n, int64_t d) {
            constexpr int N = decltype(n)::value;
            Vec vote_[N];
            vote<N>(u, weight + j * P * D + d, P, D, vote_);
            logit += dot<N>(vote_, vecs(sums) + j * D + d);
            for (int k = 0; k < N; ++k) votes[j * D + d + k] = vote_[k];
          });
          coupling[j] = logit;
        }
        softmax(coupling, J, q.leaky);
        if (q.prior) add_prior(q, block + c, coupling);
        for (int64_t j = 0; j < J; ++j)
          for (int64_t d = 0; d < D; ++d) total[j * D + d] += coupling[j] * votes[j * D + d];
      }
    }
  }

  static void reverse(const Problem<T>& q, int64_t group, int64_t first, int64_t last, const Term<T>& term, T* total_,
                      T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim, step = child_block(q), width = q.children * P;
    const int64_t rows = rows_of(q, group);
    Vec* total = vecs(total_);
    Vec* pose = vecs(scratch);
    Vec* votes = pose + step * P;
    Vec* coupling = votes + J * D;
    Vec* grad = coupling + J;
    for (int64_t block = first; block < last; block += step) {
      const int64_t count = block + step < last ? step : last - block;
      load_columns(q.poses + group * L * width, width, rows, block * P, count * P, pose);
      for (int64_t c = 0; c < count; ++c) {
        const T* weight = q.weight + (block + c) * q.weight_stride;
        for (int64_t j = 0; j < J; ++j) {
          Vec logit{}, back{};
          blocks(D, [&](auto n, int64_t d) {
            constexpr int N = decltype(n)::value;
            Vec vote_[N];
            vote<N>(pose + c * P, weight + j * P * D + d, P, D, vote_);
            logit += dot<N>(vote_, vecs(term.sums) + j * D + d);
            back += dot<N>(vote_, vecs(term.presquash) + j * D + d);
            for (int k = 0; k < N; ++k) votes[j * D + d + k] = vote_[k];
          });
          coupling[j] = logit;
          grad[j] = back;
        }
        softmax(coupling, J, q.leaky);
        softmax_backward(coupling, grad, J);
        for (int64_t j = 0; j < J; ++j)
          for (int64_t d = 0; d < D; ++d) total[j * D + d] += grad[j] * votes[j * D + d];
      }
    }
  }

  // What one parent adds to the coefficients of one child in one group: for each term t its logit in coef[2 t] and the
  // gradient of its coupling in coef[2 t + 1], each of them [J].
  static INLINE void agree(const Problem<T>& q, const Vec* u, const T* weight, int64_t j, const Term<T>* terms,
                           int count, bool through, Vec* coef) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim;
    for (int t = 0; t < count; ++t) coef[(2 * t) * J + j] = coef[(2 * t + 1) * J + j] = Vec{};
    blocks(D, [&](auto n, int64_t d) {
      constexpr int N = decltype(n)::value;
      Vec vote_[N];
      vote<N>(u, weight + j * P * D + d, P, D, vote_);
      for (int t = 0; t < count; ++t) {
        if (!terms[t].sums) continue;
        coef[(2 * t) * J + j] += dot<N>(vote_, vecs(terms[t].sums) + j * D + d);
        if (through) coef[(2 * t + 1) * J + j] += dot<N>(vote_, vecs(terms[t].presquash) + j * D + d);
      }
    });
  }

  // Logits become coupling, gradients of the coupling become gradients of the logits; the prior has its share of both.
  static INLINE void settle(const Problem<T>& q, const Term<T>* terms, int count, bool through, int64_t child,
                            T* grad_prior, Vec* coef) {
    const int64_t J = q.parents;
    const Vec uniform = splat(T(1) / T(J + (q.leaky ? 1 : 0)));
    for (int t = 0; t < count; ++t) {
      Vec* coupling = coef + (2 * t) * J;
      if (terms[t].sums) {
        softmax(coupling, J, q.leaky);
        for (int64_t j = 0; grad_prior && j < J; ++j)
          for (int l = 0; l < L; ++l) grad_prior[child * J + j] += coupling[J + j][l];
        if (through) softmax_backward(coupling, coupling + J, J);
        if (q.prior) add_prior(q, child, coupling);
      } else {
        for (int64_t j = 0; j < J; ++j) coupling[j] = uniform;
      }
    }
  }

  // The gradient of one child's vote for parent j in one group, [D]: a combination of the terms' vectors.
  static INLINE void vote_gradient(const Problem<T>& q, int64_t j, const Term<T>* terms, int count, bool through,
                                   const Vec* coef, Vec* grad) {
    const int64_t J = q.parents, D = q.out_dim;
    blocks(D, [&](auto n, int64_t d) {
      constexpr int N = decltype(n)::value;
      Vec sum[N];
      for (int k = 0; k < N; ++k) sum[k] = Vec{};
      for (int t = 0; t < count; ++t) {
        const Vec a = coef[(2 * t) * J + j];
        const Vec* x = vecs(terms[t].presquash) + j * D + d;
#pragma GCC unroll 16
        for (int k = 0; k < N; ++k) sum[k] += a * x[k];
        if (!through || !terms[t].sums) continue;
        const Vec b = coef[(2 * t + 1) * J + j];
        const Vec* y = vecs(terms[t].sums) + j * D + d;
#pragma GCC unroll 16
        for (int k = 0; k < N; ++k) sum[k] += b * y[k];
      }
      for (int k = 0; k < N; ++k) grad[d + k] = sum[k];
    });
  }

  // out[p] += sum over d of grad[d] * weight[p][d], for N neighbouring values of P.
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

  // out[p][d] += sum over groups and lanes of pose[p] * grad[d].
  static INLINE void weight_gradient(const Problem<T>& q, int groups, const Vec* pose, int64_t pose_step,
                                     const Vec* grad, int64_t grad_step, T* out) {
    const int64_t P = q.in_dim, D = q.out_dim;
    const int64_t whole_p = P - P % kTileP, whole_d = D - D % kTileD;
    for (int64_t d = 0; d < whole_d; d += kTileD)
      for (int64_t p = 0; p < whole_p; p += kTileP) {
        Vec sum[L];
        for (int k = 0; k < L; ++k) sum[k] = Vec{};
        for (int g = 0; g < groups; ++g) {
          const Vec* x = pose + g * pose_step + p;
          const Vec* y = grad + g * grad_step + d;
#pragma GCC unroll 16
          for (int a = 0; a < kTileP; ++a)
#pragma GCC unroll 4
            for (int b = 0; b < kTileD; ++b) sum[a * kTileD + b] += x[a] * y[b];
        }
        const Vec result = add_across<L>(sum);
        for (int a = 0; a < kTileP; ++a)
          for (int b = 0; b < kTileD; ++b) out[(p + a) * D + d + b] += result[a * kTileD + b];
      }
    // What the tiles leave over: the last values of P for all of D, and the last of D for the others.
    for (int64_t p = 0; p < P; ++p)
      for (int64_t d = p < whole_p ? whole_d : 0; d < D; ++d) {
        Vec sum{};
        for (int g = 0; g < groups; ++g) sum += pose[g * pose_step + p] * grad[g * grad_step + d];
        T result{};
        for (int l = 0; l < L; ++l) result += sum[l];
        out[p * D + d] += result;
      }
  }

  // Parents go in the outer loops: what belongs to one parent stays in the first-level cache for a block of children.
  static void gradients(const Problem<T>& q, int64_t first, int64_t last, const Term<T>* terms, int count, bool through,
                        const Gradients<T>& to, T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim, step = child_block(q), width = q.children * P;
    const int64_t groups = (q.batch + L - 1) / L, coefs = 2 * count * J;
    Vec* pose = vecs(scratch);                            // [groups of the chunk][children of the block][P]
    Vec* pose_grad = pose + kMaxGroupChunk * step * P;    // the same
    Vec* coef = pose_grad + kMaxGroupChunk * step * P;    // [groups][children][coefs]
    Vec* grad = coef + kMaxGroupChunk * step * coefs;     // [groups][D]
    for (int64_t chunk = 0; chunk < groups; chunk += kMaxGroupChunk) {
      const int here = chunk + kMaxGroupChunk < groups ? kMaxGroupChunk : int(groups - chunk);
      const Term<T>* mine = terms + chunk * count;
      for (int64_t block = first; block < last; block += step) {
        const int64_t size = block + step < last ? step : last - block;
        const T* weight = q.weight + block * q.weight_stride;
        for (int g = 0; g < here; ++g) {
          Vec* u = pose + g * step * P;
          load_columns(q.poses + (chunk + g) * L * width, width, rows_of(q, chunk + g), block * P, size * P, u);
          for (int64_t k = 0; k < step * P; ++k) pose_grad[g * step * P + k] = Vec{};
          Vec* own = coef + g * step * coefs;
          // Uniform coupling asks nothing of the votes.
          for (int64_t j = 0; j < J && mine[count - 1].sums; ++j)
            for (int64_t c = 0; c < size; ++c)
              agree(q, u + c * P, weight + c * q.weight_stride, j, mine + g * count, count, through, own + c * coefs);
          for (int64_t c = 0; c < size; ++c)
            settle(q, mine + g * count, count, through, block + c, to.prior, own + c * coefs);
        }
        for (int64_t j = 0; j < J; ++j)
          for (int64_t c = 0; c < size; ++c) {
            const T* w = weight + c * q.weight_stride + j * P * D;
            for (int g = 0; g < here; ++g) {
              vote_gradient(q, j, mine + g * count, count, through, coef + (g * step + c) * coefs, grad + g * D);
              Vec* out = pose_grad + (g * step + c) * P;
              int64_t p = to.poses ? 0 : P;
              for (; p + 8 <= P; p += 8) pose_gradient<8>(w + p * D, D, grad + g * D, out + p);
              for (; p < P; ++p) pose_gradient<1>(w + p * D, D, grad + g * D, out + p);
            }
            if (to.weight)
              weight_gradient(q, here, pose + c * P, step * P, grad, D,
                              to.weight + (block + c) * q.weight_stride + j * P * D);
          }
        for (int g = 0; g < here && to.poses; ++g)
          store_columns(to.poses + (chunk + g) * L * width, width, rows_of(q, chunk + g), block * P, size * P,
                        pose_grad + g * step * P);
      }
    }
  }

  // With a given share the gradient of the vote is share * grad_total: what the weight makes of grad_total serves the
  // share and the pose, and the votes themselves are not needed.
  static void weigh_gradients(const Problem<T>& q, int64_t first, int64_t last, const T* grad_totals,
                              const Gradients<T>& to, T* scratch) {
    const int64_t J = q.parents, P = q.in_dim, D = q.out_dim, step = child_block(q), width = q.children * P;
    const int64_t groups = (q.batch + L - 1) / L;
    Vec* pose = vecs(scratch);                             // [groups of the chunk][children of the block][P]
    Vec* pose_grad = pose + kMaxGroupChunk * step * P;     // the same
    Vec* weighed = pose_grad + kMaxGroupChunk * step * P;  // [groups][P]
    for (int64_t chunk = 0; chunk < groups; chunk += kMaxGroupChunk) {
      const int here = chunk + kMaxGroupChunk < groups ? kMaxGroupChunk : int(groups - chunk);
      for (int64_t block = first; block < last; block += step) {
        const int64_t size = block + step < last ? step : last - block;
        for (int g = 0; g < here; ++g) {
          Vec* u = pose + g * step * P;
          load_columns(q.poses + (chunk + g) * L * width, width, rows_of(q, chunk + g), block * P, size * P, u);
          for (int64_t k = 0; k < step * P; ++k) pose_grad[g * step * P + k] = Vec{};
        }
        for (int64_t j = 0; j < J; ++j) {
          const Vec* grad = vecs(grad_totals) + chunk * q.sheet() + j * D;
          for (int64_t c = 0; c < size; ++c) {
            const int64_t at = (block + c) * q.weight_stride + j * P * D, row = (block + c) * J + j;
            for (int g = 0; g < here; ++g) {
              const Vec* u = pose + (g * step + c) * P;
              const Vec share = load_lanes(q.share, q.batch, chunk + g, row);
              Vec* pulled = weighed + g * P;
              for (int64_t p = 0; p < P; ++p) pulled[p] = Vec{};
              int64_t p = to.poses || to.share ? 0 : P;
              for (; p + 8 <= P; p += 8) pose_gradient<8>(q.weight + at + p * D, D, grad + g * q.sheet(), pulled + p);
              for (; p < P; ++p) pose_gradient<1>(q.weight + at + p * D, D, grad + g * q.sheet(), pulled + p);
              Vec back{};
              for (p = 0; p < P; ++p) {
                back += u[p] * pulled[p];
                pose_grad[(g * step + c) * P + p] += share * pulled[p];
                pulled[p] = share * u[p];
              }
              if (to.share) store_lanes(to.share, q.batch, chunk + g, row, back);
            }
            if (to.weight) weight_gradient(q, here, weighed, P, grad, q.sheet(), to.weight + at);
          }
        }
        for (int g = 0; g < here && to.poses; ++g)
          store_columns(to.poses + (chunk + g) * L * width, width, rows_of(q, chunk + g), block * P, size * P,
                        pose_grad + g * step * P);
      }
    }
  }

  static void finish(const Problem<T>& q, const T* parts, int count, int64_t stride, T scale, const T* bias,
                     T* presquash) {
    for (int64_t k = 0; k < q.sheet(); ++k) {
      Vec sum{};
      for (int part = 0; part < count; ++part) sum += vecs(parts + part * stride)[k];
      vecs(presquash)[k] = sum * scale + (bias ? bias[k] : T(0));
    }
  }

  static INLINE Vec root(Vec x) {
    for (int l = 0; l < L; ++l) x[l] = std::sqrt(x[l]);
    return x;
  }

  static void squash(const Problem<T>& q, const T* presquash, T* poses) {
    for (int64_t j = 0; j < q.parents; ++j) {
      const Vec* s = vecs(presquash) + j * q.out_dim;
      Vec square{};
      for (int64_t d = 0; d < q.out_dim; ++d) square += s[d] * s[d];
      const Vec scale = root(square) / (square + T(1));
      for (int64_t d = 0; d < q.out_dim; ++d) vecs(poses)[j * q.out_dim + d] = s[d] * scale;
    }
  }

  // With n = |s| and f = n / (1 + n^2): grad_s = f grad + s (s . grad) f' / n, and f' / n counts as 0 at n = 0.
  static void squash_backward(const Problem<T>& q, const T* presquash, const T* grad_poses, T* grad_presquash) {
    for (int64_t j = 0; j < q.parents; ++j) {
      const Vec* s = vecs(presquash) + j * q.out_dim;
      const Vec* g = vecs(grad_poses) + j * q.out_dim;
      Vec square{}, along{};
      for (int64_t d = 0; d < q.out_dim; ++d) {
        square += s[d] * s[d];
        along += s[d] * g[d];
      }
      const Vec length = root(square), one = square + T(1), scale = length / one;
      const Vec safe = length > T(0) ? length : splat(T(1));
      const Vec slope = (T(1) - square) / (one * one) * along / safe;
      for (int64_t d = 0; d < q.out_dim; ++d)
        vecs(grad_presquash)[j * q.out_dim + d] = scale * g[d] + slope * s[d];
    }
  }

  static void load(const Problem<T>& q, int64_t group, const T* rows, T* sheet) {
    load_columns(rows + group * L * q.sheet(), q.sheet(), rows_of(q, group), 0, q.sheet(), vecs(sheet));
  }

  static void store(const Problem<T>& q, int64_t group, const T* sheet, T* rows) {
    store_columns(rows + group * L * q.sheet(), q.sheet(), rows_of(q, group), 0, q.sheet(), vecs(sheet));
  }

  static int64_t scratch(const Problem<T>& q, int count) {
    const int64_t poses = child_block(q) * q.in_dim;
    const int64_t pass = poses + q.sheet() + 2 * q.parents;
    const int64_t sides = q.in_dim > q.out_dim ? q.in_dim : q.out_dim;
    const int64_t last = kMaxGroupChunk * (2 * poses + child_block(q) * 2 * count * q.parents + sides);
    return (pass > last ? pass : last) * L;
  }

  static const Stages<T>* stages() {
    static constexpr Stages<T> table = {L,      gather,          reverse, gradients, weigh_gradients, finish,
                                        squash, squash_backward, load,    store,     scratch};
    return &table;
  }
};

}  // namespace

template <>
const Stages<float>* Isa<float>::ISA() {
  return Kernel<float>::stages();
}
template <>
const Stages<double>* Isa<double>::ISA() {
  return Kernel<double>::stages();
}

}  // namespace torchcaps
