// Sums of votes whose share is given, from poses and weight, without storing votes. The stages are in stages.inl, the
// mathematics in src/torchcaps/ops/self_routing/README.md.
#include "driver.h"
#include "entry.h"

namespace torchcaps {
namespace {

struct WeighSizes {
  int64_t batch, children, parents, in_dim, out_dim;
  // With one weight for all children the poses can be added up first, and no kernel is needed.
  static constexpr bool shared = false;
};

template <class T>
struct Inputs {
  const T *share, *poses, *weight;

  Problem<T> problem(const WeighSizes& s) const {
    Problem<T> q = make_problem(poses, weight, s);
    q.share = share;
    return q;
  }
};

// total [B, J, D] = sum over the children of share * vote.
template <class T>
void forward(const Inputs<T>& in, T* out, const WeighSizes& s, int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = in.problem(s);
  const Plan plan = make_plan(q, stage.lanes);
  const int64_t sheet = q.sheet() * stage.lanes, all = plan.groups * sheet;
  const int size = team_size(q, 1, threads);
  const int64_t private_size = private_scratch(stage, q, 0);
  Memory<T> memory(all * (plan.ranges + 1) + size * private_size);
  T *totals = memory.values, *sum = totals + plan.ranges * all, *scratch = sum + all;
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    sweep(team, q, plan, stage.lanes, totals, [&](int64_t group, int64_t first, int64_t last, T* total) {
      stage.gather(q, group, first, last, nullptr, total, own);
    });
    team.each(plan.groups, [&](int64_t group) {
      const int64_t at = group * sheet;
      stage.finish(q, totals + at, int(plan.ranges), all, T(1), nullptr, sum + at);
      stage.store(q, group, sum + at, out);
    });
  });
}

// From the gradient of the total [B, J, D] to those of share, poses and weight, in one pass over the children.
template <class T>
void backward(const Inputs<T>& in, const T* grad_total, const Gradients<T>& to, const WeighSizes& s, int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = in.problem(s);
  const int64_t sheet = q.sheet() * stage.lanes, groups = (q.batch + stage.lanes - 1) / stage.lanes;
  const int size = team_size(q, 2, threads);
  const int64_t private_size = private_scratch(stage, q, 1);
  const Pieces<T> pieces(q, to);
  Memory<T> memory(groups * sheet + size * private_size);
  T *grads = memory.values, *scratch = grads + groups * sheet;
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    team.each(groups, [&](int64_t group) { stage.load(q, group, grad_total, grads + group * sheet); });
    pieces.run(team, q, to, nullptr, [&](int64_t first, int64_t last, const Gradients<T>& mine) {
      stage.weigh_gradients(q, first, last, grads, mine, own);
    });
  });
}

}  // namespace
}  // namespace torchcaps

extern "C" {

#define ENTRIES(T, SUFFIX)                                                                                             \
  EXPORT int torchcaps_weigh_forward_##SUFFIX(const T* share, const T* poses, const T* weight, T* out,                 \
                                              const int64_t* sizes, int threads) {                                     \
    const auto& s = *reinterpret_cast<const torchcaps::WeighSizes*>(sizes);                                            \
    return torchcaps::guarded([&] { torchcaps::forward<T>({share, poses, weight}, out, s, threads); });                \
  }                                                                                                                    \
  EXPORT int torchcaps_weigh_backward_##SUFFIX(const T* share, const T* poses, const T* weight, const T* grad_total,   \
                                               T* grad_share, T* grad_poses, T* grad_weight, const int64_t* sizes,     \
                                               int threads) {                                                          \
    const auto& s = *reinterpret_cast<const torchcaps::WeighSizes*>(sizes);                                            \
    return torchcaps::guarded([&] {                                                                                    \
      torchcaps::backward<T>({share, poses, weight}, grad_total, {grad_poses, grad_weight, nullptr, grad_share}, s,    \
                             threads);                                                                                 \
    });                                                                                                                \
  }

ENTRIES(float, f32)
ENTRIES(double, f64)
}
