// Dynamic routing from poses and weight, without storing votes: which stage runs when, and on which thread. The stages
// are in stages.inl, the mathematics in src/torchcaps/ops/dynamic/README.md.
#include <algorithm>
#include <memory>

#include "driver.h"
#include "entry.h"

namespace torchcaps {
namespace {

struct Sizes {
  int64_t batch, children, parents, in_dim, out_dim, iters, shared, leaky, last_only;
};

template <class T>
Problem<T> leaky_problem(const T* poses, const T* weight, const Sizes& s) {
  Problem<T> q = make_problem(poses, weight, s);
  q.leaky = s.leaky != 0;
  return q;
}

// poses [B, J, D] is the result; presquash [R, B, J, D], unless null, is what the backward pass starts from.
template <class T>
void forward(const T* poses, const T* weight, const T* bias, T* out, T* presquash, const Sizes& s, int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = leaky_problem(poses, weight, s);
  const Plan plan = make_plan(q, stage.lanes);
  const int64_t sheet = q.sheet() * stage.lanes, all = plan.groups * sheet, rows = s.batch * q.sheet();
  const int size = team_size(q, s.iters, threads);
  const int64_t private_size = private_scratch(stage, q, 0);
  Memory<T> memory(all * (plan.ranges + 3) + size * private_size);
  T *totals = memory.values, *sums = totals + plan.ranges * all, *current = sums + all, *parents = current + all;
  T* scratch = parents + all;
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    for (int64_t r = 0; r < s.iters; ++r) {
      sweep(team, q, plan, stage.lanes, totals, [&](int64_t group, int64_t first, int64_t last, T* total) {
        stage.gather(q, group, first, last, r ? sums + group * sheet : nullptr, total, own);
      });
      team.each(plan.groups, [&](int64_t group) {
        const int64_t at = group * sheet;
        const T scale = r ? T(1) : T(1) / T(s.parents + s.leaky);
        stage.finish(q, totals + at, int(plan.ranges), all, scale, bias, current + at);
        stage.squash(q, current + at, parents + at);
        if (presquash) stage.store(q, group, current + at, presquash + r * rows);
        if (r == s.iters - 1) stage.store(q, group, parents + at, out);
        for (int64_t k = at; k < at + sheet; ++k) sums[k] = (r ? sums[k] : T(0)) + parents[k];
      });
    }
  });
}

template <class T>
void backward(const T* poses, const T* weight, const T* presquash, const T* grad_out, T* grad_poses, T* grad_weight,
              T* grad_bias, const Sizes& s, int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = leaky_problem(poses, weight, s);
  const Plan plan = make_plan(q, stage.lanes);
  const int64_t sheet = q.sheet() * stage.lanes, all = plan.groups * sheet, rows = s.batch * q.sheet();
  const int64_t R = s.iters, first_term = s.last_only ? R - 1 : 0;
  const int count = int(R - first_term);
  const int size = team_size(q, s.iters, threads);
  const int64_t private_size = private_scratch(stage, q, count);
  const Gradients<T> to = {grad_poses, grad_weight, nullptr};
  const Pieces<T> pieces(q, to);
  Memory<T> memory(all * (2 * R + 3 + plan.ranges) + size * private_size + pieces.room());
  T* sums = memory.values;
  T* grads = sums + R * all;
  T* current = grads + R * all;
  T* parents = current + all;
  T* flow = parents + all;
  T* totals = flow + all;
  T* scratch = totals + plan.ranges * all;
  T* parts = scratch + size * private_size;
  std::unique_ptr<Term<T>[]> terms(new Term<T>[plan.groups * count]);
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    team.each(plan.groups, [&](int64_t group) {
      const int64_t at = group * sheet;
      std::fill(sums + at, sums + at + sheet, T(0));
      for (int64_t r = 0; r < R; ++r) {
        stage.load(q, group, presquash + r * rows, current + at);
        if (r == R - 1) break;
        stage.squash(q, current + at, parents + at);
        for (int64_t k = at; k < at + sheet; ++k) sums[(r + 1) * all + k] = sums[r * all + k] + parents[k];
      }
      stage.load(q, group, grad_out, flow + at);
      stage.squash_backward(q, current + at, flow + at, grads + (R - 1) * all + at);
      std::fill(flow + at, flow + at + sheet, T(0));
      for (int64_t r = first_term; r < R; ++r)
        terms[group * count + r - first_term] = {r ? sums + r * all + at : nullptr, grads + r * all + at};
    });
    for (int64_t r = R - 1; r > first_term; --r) {
      sweep(team, q, plan, stage.lanes, totals, [&](int64_t group, int64_t first, int64_t last, T* total) {
        stage.reverse(q, group, first, last, terms[group * count + r], total, own);
      });
      team.each(plan.groups, [&](int64_t group) {
        const int64_t at = group * sheet;
        stage.finish(q, totals + at, int(plan.ranges), all, T(1), nullptr, parents + at);
        for (int64_t k = at; k < at + sheet; ++k) flow[k] += parents[k];
        stage.load(q, group, presquash + (r - 1) * rows, current + at);
        stage.squash_backward(q, current + at, flow + at, grads + (r - 1) * all + at);
      });
    }
    if (grad_poses || grad_weight)
      pieces.run(team, q, to, parts, [&](int64_t first, int64_t last, const Gradients<T>& mine) {
        stage.gradients(q, first, last, terms.get(), count, !s.last_only, mine, own);
      });
  });
  pieces.add_up(parts, to);
  for (int64_t k = 0; grad_bias && k < q.sheet(); ++k) {
    T sum{};
    for (int64_t r = first_term; r < R; ++r)
      for (int64_t group = 0; group < plan.groups; ++group) {
        const T* lane = grads + r * all + group * sheet + k * stage.lanes;
        T part{};
        for (int l = 0; l < stage.lanes; ++l) part += lane[l];
        sum += part;
      }
    grad_bias[k] = sum;
  }
}

}  // namespace
}  // namespace torchcaps

extern "C" {

#define ENTRIES(T, SUFFIX)                                                                                             \
  EXPORT int torchcaps_dynamic_forward_##SUFFIX(const T* poses, const T* weight, const T* bias, T* out,                \
                                                T* presquash, const int64_t* sizes, int threads) {                     \
    const auto& s = *reinterpret_cast<const torchcaps::Sizes*>(sizes);                                                 \
    return torchcaps::guarded([&] { torchcaps::forward<T>(poses, weight, bias, out, presquash, s, threads); });        \
  }                                                                                                                    \
  EXPORT int torchcaps_dynamic_backward_##SUFFIX(const T* poses, const T* weight, const T* presquash,                  \
                                                 const T* grad_out, T* grad_poses, T* grad_weight,                     \
                                                 T* grad_bias, const int64_t* sizes, int threads) {                    \
    const auto& s = *reinterpret_cast<const torchcaps::Sizes*>(sizes);                                                 \
    return torchcaps::guarded([&] {                                                                                    \
      torchcaps::backward<T>(poses, weight, presquash, grad_out, grad_poses, grad_weight, grad_bias, s, threads);      \
    });                                                                                                                \
  }

ENTRIES(float, f32)
ENTRIES(double, f64)
}
