// One pass of Kuramoto routing from poses and weight without stored votes: its division among threads. kuramoto.inl has
// the passes.
#include "kuramoto.h"

#include "../common/c_api.h"
#include "launch.h"

namespace torchcaps {
namespace {

// A routing of several passes has the gradients of all of them in memory as well.
constexpr int64_t kKuramotoPartialBytes = 1024 * 1024;

struct KuramotoSizes {
  GridSizes grid;
  int64_t turns;
};

// `constants` are gain and step. Keys and offsets may be null.
template <class T>
struct KuramotoForward {
  const T *poses, *activations, *weight, *keys, *offsets, *constants;
  T* out;
};

template <class T>
struct KuramotoBackward {
  const T *poses, *activations, *weight, *keys, *offsets, *constants, *grad_out;
  T *grad_poses, *grad_activations, *grad_weight, *grad_keys;
};

template <class T>
class KuramotoCall {
 public:
  template <class Tensors>
  KuramotoCall(const Tensors& in, const KuramotoSizes& s)
      : edges(checked(in, s).grid),
        kernels(select_kernels<KuramotoTables<T>>()),
        problem{make_grid<T>(in, s.grid, edges), s.turns, in.constants[0], in.constants[1]},
        key_columns(problem.grid.all_parents() * problem.key_columns()),
        sum_columns(problem.grid.all_parents() * problem.sum_columns()),
        keys(key_columns * kernels.lanes),
        sums(sum_columns * kernels.lanes),
        plan(make_grid_plan(problem.grid, kernels.lanes, std::max(keys, sums) * int64_t(sizeof(T)),
                            kKuramotoPartialBytes)) {}

  // Called by all threads: the rows of all groups of a matrix [B, columns] as vectors.
  void load(ThreadTeam& team, int64_t columns, const T* matrix, T* vectors) const {
    team.parallel_for(plan.groups, [&](int64_t group) {
      kernels.load(problem, group, columns, matrix, vectors + group * columns * kernels.lanes);
    });
  }

  // Called by all threads: the sum of pass(block, state) over all cells, as a matrix [B, columns].
  template <class Pass>
  void sum(ThreadTeam& team, int64_t columns, T* partials, T* total, T* matrix, Pass pass) const {
    const int64_t state = columns * kernels.lanes;
    accumulate_cells(team, problem.grid, plan, state, partials, pass);
    team.parallel_for(plan.groups, [&](int64_t group) {
      kernels.reduce(columns, partials + group * state, plan.ranges, plan.groups * state, total + group * state);
      kernels.store(problem, group, columns, total + group * state, matrix);
    });
  }

  Edges edges;
  const KuramotoKernels<T>& kernels;
  KuramotoProblem<T> problem;
  int64_t key_columns, sum_columns;
  int64_t keys, sums;  // values of one group
  GridPlan plan;

 private:
  template <class Tensors>
  static const KuramotoSizes& checked(const Tensors& in, const KuramotoSizes& s) {
    if ((s.turns > 0) != (in.keys != nullptr)) throw std::invalid_argument("expected keys for every turn");
    check_grid(s.grid);
    return s;
  }
};

template <class T>
void kuramoto_forward(const KuramotoForward<T>& to, const KuramotoSizes& s, int threads) {
  const KuramotoCall<T> call(to, s);
  const KuramotoProblem<T>& q = call.problem;
  const GridPlan& plan = call.plan;
  ThreadTeam team(grid_team_size(q.grid, 1, threads));
  const int64_t scratch_bytes = call.kernels.scratch_bytes(q);
  char* scratch;
  T *keys, *partials, *total;
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    keys = carver.take<T>(plan.groups * call.keys);
    partials = carver.take<T>(plan.ranges * plan.groups * call.sums);
    total = carver.take<T>(plan.groups * call.sums);
  });
  team.run([&](int thread) {
    void* own = scratch + thread * scratch_bytes;
    if (to.keys) call.load(team, call.key_columns, to.keys, keys);
    call.sum(team, call.sum_columns, partials, total, to.out, [&](const CellBlock& block, T* sums) {
      call.kernels.accumulate(q, block, to.keys ? keys + block.group * call.keys : nullptr, sums, own);
    });
  });
}

template <class T>
void kuramoto_backward(const KuramotoBackward<T>& to, const KuramotoSizes& s, int threads) {
  const KuramotoCall<T> call(to, s);
  const KuramotoProblem<T>& q = call.problem;
  const GridPlan& plan = call.plan;
  CellPartition<T> partition(q.grid, s.grid);
  ThreadTeam team(grid_team_size(q.grid, 2, threads));
  const int64_t scratch_bytes = call.kernels.scratch_bytes(q);
  char* scratch;
  T *keys, *grads, *partials, *total;
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    keys = carver.take<T>(plan.groups * call.keys);
    grads = carver.take<T>(plan.groups * call.sums);
    partials = carver.take<T>(plan.ranges * plan.groups * call.keys);
    total = carver.take<T>(plan.groups * call.keys);
    partition.take(carver);
  });
  team.run([&](int thread) {
    void* own = scratch + thread * scratch_bytes;
    if (to.keys) call.load(team, call.key_columns, to.keys, keys);
    call.load(team, call.sum_columns, to.grad_out, grads);
    if (to.keys)
      call.sum(team, call.key_columns, partials, total, to.grad_keys, [&](const CellBlock& block, T* grad_keys) {
        call.kernels.accumulate_key_gradients(q, block, keys + block.group * call.keys, grads + block.group * call.sums,
                                              grad_keys, own);
      });
    partition.run(team, q.grid, {to.grad_poses, to.grad_activations, to.grad_weight},
                  [&](int64_t, int64_t first, int64_t last, const GridGradients<T>& gradients) {
                    call.kernels.backward(q, first, last, to.keys ? keys : nullptr, grads, gradients, own);
                  });
  });
  partition.reduce(to.grad_weight);
}

}  // namespace
}  // namespace torchcaps

TORCHCAPS_ENTRY(kuramoto_forward, kuramoto_forward, KuramotoForward, KuramotoSizes)
TORCHCAPS_ENTRY(kuramoto_backward, kuramoto_backward, KuramotoBackward, KuramotoSizes)
