// EM and variational Bayes routing from poses and weight without stored votes, over a grid or in a dense layer: the
// iterations and their division among threads. gaussian.inl has the passes; the derivations are in
// src/torchcaps/ops/em/README.md and src/torchcaps/ops/variational/README.md.
#include "gaussian.h"

#include <stdexcept>

#include "../common/c_api.h"
#include "launch.h"

namespace torchcaps {
namespace {

struct GaussianSizes {
  GridSizes grid;
  int64_t iters, model, background;
  int64_t saved_size;  // values in the saved state of the whole batch
};

// `betas` holds beta_u and beta_a of each parent and, where there is one, the background in its third row. `constants`
// holds, for EM, the variance floor, the mass floor, the momentum, and the inverse temperature and the sharpness of
// each iteration; for variational Bayes the prior's scatter, strength and concentration.
template <class T>
struct GaussianForward {
  const T *poses, *weight, *activations, *betas, *offsets, *constants;  // offsets may be null
  T *out, *out_activations, *saved;
};

template <class T>
struct GaussianBackward {
  const T *poses, *weight, *activations, *betas, *offsets, *constants, *saved, *grad_out, *grad_out_activations;
  T *grad_poses, *grad_activations, *grad_weight, *grad_betas;
};

// One call: the problem, its plan, and where the state of a group is.
template <class T>
class GaussianCall {
 public:
  template <class Tensors>
  GaussianCall(const Tensors& in, const GaussianSizes& s)
      : edges(checked(s).grid),
        kernels(select_kernels<GaussianTables<T>>()),
        problem(make_problem(in, s)),
        model(s.model),
        parents(problem.grid.all_parents()),
        records(parents * problem.record() * kernels.lanes),
        saved(parents * problem.saved() * kernels.lanes),
        plan(make_grid_plan(problem.grid, kernels.lanes, records * int64_t(sizeof(T)))) {
    if (s.saved_size != plan.groups * problem.iters * saved)
      throw std::invalid_argument("saved state: expected the size of this problem, got another one");
  }

  // Called by all threads: work(group, position) once for every group and position.
  template <class Work>
  void for_each_position(ThreadTeam& team, Work work) const {
    const int64_t positions = problem.grid.positions;
    team.parallel_for(plan.groups * positions, [&](int64_t item) { work(item / positions, item % positions); });
  }

  Edges edges;
  const GaussianKernels<T>& kernels;
  GaussianProblem<T> problem;
  int64_t model, parents;
  int64_t records, saved;  // values of one iteration of a group
  GridPlan plan;

 private:
  static const GaussianSizes& checked(const GaussianSizes& s) {
    if (s.iters < 1) throw std::invalid_argument("expected at least one iteration");
    if (s.model > int64_t(Model::kVariational)) throw std::invalid_argument("unknown model");
    check_grid(s.grid);
    return s;
  }

  template <class Tensors>
  GaussianProblem<T> make_problem(const Tensors& in, const GaussianSizes& s) const {
    constexpr int64_t kSingle = 3;
    const bool em = Model(s.model) == Model::kEm;
    GaussianProblem<T> q{};
    q.grid = make_grid<T>(in, s.grid, edges);
    q.beta_u = in.betas;
    q.beta_a = in.betas + s.grid.parents;
    q.background = s.background ? in.betas + 2 * s.grid.parents : nullptr;
    q.variance_floor = in.constants[0];
    q.mass_floor = in.constants[1];
    (em ? q.momentum : q.concentration) = in.constants[2];
    q.inverse_temp = em ? in.constants + kSingle : nullptr;
    q.sharpness = em ? in.constants + kSingle + s.iters : nullptr;
    q.iters = s.iters;
    return q;
  }
};

template <class T>
void gaussian_forward(const GaussianForward<T>& to, const GaussianSizes& s, int threads) {
  const GaussianCall<T> call(to, s);
  const GaussianProblem<T>& q = call.problem;
  const GaussianKernels<T>& kernels = call.kernels;
  const GridPlan& plan = call.plan;
  const int64_t records = call.records;
  ThreadTeam team(grid_team_size(q.grid, q.iters + 1, threads));
  const int64_t scratch_bytes = kernels.scratch_bytes(q);
  char* scratch;
  T *partials, *moments, *gaussian;
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    partials = carver.take<T>(plan.ranges * plan.groups * records);
    moments = carver.take<T>(plan.groups * records);
    gaussian = carver.take<T>(plan.groups * records);
  });
  team.run([&](int thread) {
    void* own = scratch + thread * scratch_bytes;
    const auto reduce = [&] {
      team.parallel_for(plan.groups, [&](int64_t group) {
        kernels.reduce(q, partials + group * records, plan.ranges, plan.groups * records, moments + group * records);
      });
    };
    for (int64_t r = 0; r < q.iters; ++r) {
      if (r == 0) {
        accumulate_cells(team, q.grid, plan, records, partials,
                         [&](const CellBlock& block, T* total) { kernels.accumulate_first(q, block, total, own); });
        reduce();
        call.for_each_position(team, [&](int64_t group, int64_t position) {
          kernels.first_mean(q, position, moments + group * records, gaussian + group * records);
        });
      }
      accumulate_cells(team, q.grid, plan, records, partials, [&](const CellBlock& block, T* total) {
        (r ? kernels.accumulate_moments : kernels.accumulate_second)(q, block, gaussian + block.group * records, total,
                                                                     own);
      });
      reduce();
      call.for_each_position(team, [&](int64_t group, int64_t position) {
        kernels.update[call.model](q, r, position, moments + group * records,
                                   to.saved + (group * q.iters + r) * call.saved, gaussian + group * records);
      });
    }
    team.parallel_for(plan.groups, [&](int64_t group) {
      kernels.store(q, group, to.saved + (group * q.iters + q.iters - 1) * call.saved, to.out, to.out_activations);
    });
  });
}

template <class T>
void gaussian_backward(const GaussianBackward<T>& to, const GaussianSizes& s, int threads) {
  const GaussianCall<T> call(to, s);
  const GaussianProblem<T>& q = call.problem;
  const GaussianKernels<T>& kernels = call.kernels;
  const GridPlan& plan = call.plan;
  const int64_t records = call.records, R = q.iters, J = q.grid.parents, lanes = kernels.lanes;
  CellPartition<T> partition(q.grid, s.grid);
  ThreadTeam team(grid_team_size(q.grid, 2 * R, threads));
  const int64_t scratch_bytes = kernels.scratch_bytes(q), betas = 2 * J * lanes;
  const int64_t positions = q.grid.positions;
  char* scratch;
  T *partials, *moments;
  T *gaussian, *share_gradients;    // [groups][R] records
  T *grad_betas, *grad_background;  // [groups][positions] and [parts], vectors
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    partials = carver.take<T>(plan.ranges * plan.groups * records);
    moments = carver.take<T>(plan.groups * records);
    gaussian = carver.take<T>(plan.groups * R * records);
    share_gradients = carver.take<T>(plan.groups * R * records);
    grad_betas = carver.take<T>(plan.groups * positions * betas);
    grad_background = carver.take<T>(partition.parts() * lanes);
    partition.take(carver);
  });
  std::fill(grad_betas, grad_betas + plan.groups * positions * betas, T(0));
  std::fill(grad_background, grad_background + partition.parts() * lanes, T(0));
  const auto at = [&](int64_t group, int64_t r) { return (group * R + r) * records; };
  team.run([&](int thread) {
    void* own = scratch + thread * scratch_bytes;
    const auto update_backward = [&](int64_t r) {
      call.for_each_position(team, [&](int64_t group, int64_t position) {
        const bool last = r == R - 1;
        kernels.update_backward[call.model](
            q, r, position, to.saved + (group * R + r) * call.saved, gaussian + at(group, r),
            last ? nullptr : moments + group * records, last ? nullptr : share_gradients + at(group, r + 1),
            share_gradients + at(group, r), grad_betas + (group * positions + position) * betas);
      });
    };
    call.for_each_position(team, [&](int64_t group, int64_t position) {
      for (int64_t r = 0; r < R; ++r)
        kernels.restore[call.model](q, r, position, to.saved + (group * R + r) * call.saved, gaussian + at(group, r));
    });
    team.parallel_for(plan.groups, [&](int64_t group) {
      kernels.load_gradients(q, group, to.grad_out, to.grad_out_activations, share_gradients + at(group, R - 1));
    });
    update_backward(R - 1);
    for (int64_t r = R - 1; r > 0; --r) {
      accumulate_cells(team, q.grid, plan, records, partials, [&](const CellBlock& block, T* total) {
        kernels.accumulate_logit_gradients(q, block, gaussian + at(block.group, r - 1), gaussian + at(block.group, r),
                                           share_gradients + at(block.group, r), total, own);
      });
      team.parallel_for(plan.groups, [&](int64_t group) {
        kernels.reduce(q, partials + group * records, plan.ranges, plan.groups * records, moments + group * records);
      });
      update_backward(r - 1);
    }
    partition.run(team, q.grid, {to.grad_poses, to.grad_activations, to.grad_weight},
                  [&](int64_t part, int64_t first, int64_t last, const GridGradients<T>& gradients) {
                    kernels.backward_votes(q, first, last, gaussian, share_gradients, gradients,
                                           grad_background + part * lanes, own);
                  });
  });
  partition.reduce(to.grad_weight);
  const auto sum = [&](const T* vectors, int64_t count, int64_t stride) {
    T total{};
    for (int64_t k = 0; k < count; ++k) {
      T part{};
      for (int64_t l = 0; l < lanes; ++l) part += vectors[k * stride + l];
      total += part;
    }
    return total;
  };
  for (int64_t k = 0; k < 2 * J; ++k) to.grad_betas[k] = sum(grad_betas + k * lanes, plan.groups * positions, betas);
  if (!q.background) return;
  // The background is the same number for all parents: its first copy has the gradient of all.
  std::fill(to.grad_betas + 2 * J, to.grad_betas + 3 * J, T(0));
  to.grad_betas[2 * J] = sum(grad_background, partition.parts(), lanes);
}

}  // namespace
}  // namespace torchcaps

TORCHCAPS_ENTRY(gaussian_forward, gaussian_forward, GaussianForward, GaussianSizes)
TORCHCAPS_ENTRY(gaussian_backward, gaussian_backward, GaussianBackward, GaussianSizes)
