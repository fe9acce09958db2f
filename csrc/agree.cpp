// One pass of routing by agreement from poses and weight, without storing votes: children share themselves out among the
// parents' keys. The stages are in stages.inl, the mathematics in src/torchcaps/ops/agreement/README.md.
#include <memory>

#include "driver.h"
#include "entry.h"

namespace torchcaps {
namespace {

struct AgreeSizes {
  int64_t batch, children, parents, in_dim, out_dim, shared;
};

template <class T>
struct Inputs {
  const T *poses, *weight, *key, *prior;  // key [B, J, D] and prior [I, J] may be null

  Problem<T> problem(const AgreeSizes& s) const {
    Problem<T> q = make_problem(poses, weight, s);
    q.prior = prior;
    return q;
  }
};

// total [B, J, D] = sum over the children of (coupling + prior) * vote; without a key coupling is uniform.
template <class T>
void forward(const Inputs<T>& in, T* out, const AgreeSizes& s, int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = in.problem(s);
  const Plan plan = make_plan(q, stage.lanes);
  const int64_t sheet = q.sheet() * stage.lanes, all = plan.groups * sheet;
  const int size = team_size(q, 1, threads);
  const int64_t private_size = private_scratch(stage, q, 0);
  Memory<T> memory(all * (plan.ranges + 2) + size * private_size);
  T *totals = memory.values, *keys = totals + plan.ranges * all, *sum = keys + all, *scratch = sum + all;
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    if (in.key)
      team.each(plan.groups, [&](int64_t group) { stage.load(q, group, in.key, keys + group * sheet); });
    sweep(team, q, plan, stage.lanes, totals, [&](int64_t group, int64_t first, int64_t last, T* total) {
      stage.gather(q, group, first, last, in.key ? keys + group * sheet : nullptr, total, own);
    });
    team.each(plan.groups, [&](int64_t group) {
      const int64_t at = group * sheet;
      const T scale = in.key ? T(1) : T(1) / T(s.parents);
      stage.finish(q, totals + at, int(plan.ranges), all, scale, nullptr, sum + at);
      stage.store(q, group, sum + at, out);
    });
  });
}

// From the gradient of the total [B, J, D] to those of poses, weight and prior, and to that of the key unless null.
template <class T>
void backward(const Inputs<T>& in, const T* grad_total, const Gradients<T>& to, T* grad_key, const AgreeSizes& s,
              int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = in.problem(s);
  const Plan plan = make_plan(q, stage.lanes);
  const int64_t sheet = q.sheet() * stage.lanes, all = plan.groups * sheet;
  const int size = team_size(q, 2, threads);
  const int64_t private_size = private_scratch(stage, q, 1);
  const Pieces<T> pieces(q, to);
  Memory<T> memory(all * (plan.ranges + 3) + size * private_size + pieces.room());
  T *totals = memory.values, *keys = totals + plan.ranges * all, *grads = keys + all, *sum = grads + all;
  T *scratch = sum + all, *parts = scratch + size * private_size;
  std::unique_ptr<Term<T>[]> terms(new Term<T>[plan.groups]);
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    team.each(plan.groups, [&](int64_t group) {
      const int64_t at = group * sheet;
      if (in.key) stage.load(q, group, in.key, keys + at);
      stage.load(q, group, grad_total, grads + at);
      terms[group] = {in.key ? keys + at : nullptr, grads + at};
    });
    if (grad_key) {
      sweep(team, q, plan, stage.lanes, totals, [&](int64_t group, int64_t first, int64_t last, T* total) {
        stage.reverse(q, group, first, last, terms[group], total, own);
      });
      team.each(plan.groups, [&](int64_t group) {
        const int64_t at = group * sheet;
        stage.finish(q, totals + at, int(plan.ranges), all, T(1), nullptr, sum + at);
        stage.store(q, group, sum + at, grad_key);
      });
    }
    if (to.poses || to.weight || to.prior)
      pieces.run(team, q, to, parts, [&](int64_t first, int64_t last, const Gradients<T>& mine) {
        stage.gradients(q, first, last, terms.get(), 1, true, mine, own);
      });
  });
  pieces.add_up(parts, to);
}

}  // namespace
}  // namespace torchcaps

extern "C" {

#define ENTRIES(T, SUFFIX)                                                                                             \
  EXPORT int torchcaps_agree_forward_##SUFFIX(const T* poses, const T* weight, const T* key, const T* prior, T* out,   \
                                              const int64_t* sizes, int threads) {                                     \
    const auto& s = *reinterpret_cast<const torchcaps::AgreeSizes*>(sizes);                                            \
    return torchcaps::guarded([&] { torchcaps::forward<T>({poses, weight, key, prior}, out, s, threads); });           \
  }                                                                                                                    \
  EXPORT int torchcaps_agree_backward_##SUFFIX(const T* poses, const T* weight, const T* key, const T* prior,          \
                                               const T* grad_total, T* grad_poses, T* grad_weight, T* grad_key,        \
                                               T* grad_prior, const int64_t* sizes, int threads) {                     \
    const auto& s = *reinterpret_cast<const torchcaps::AgreeSizes*>(sizes);                                            \
    return torchcaps::guarded([&] {                                                                                    \
      torchcaps::backward<T>({poses, weight, key, prior}, grad_total, {grad_poses, grad_weight, grad_prior}, grad_key, \
                             s, threads);                                                                              \
    });                                                                                                                \
  }

ENTRIES(float, f32)
ENTRIES(double, f64)
}
