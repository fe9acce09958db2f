// One pass of softmax attention over the votes of a grid, from poses and weight without stored votes: its division
// among threads. attention.inl has the passes.
#include "attention.h"

#include <stdexcept>

#include "../common/c_api.h"
#include "launch.h"

namespace torchcaps {
namespace {

// A routing of several passes has the gradients of all of them in memory as well.
constexpr int64_t kAttentionPartialBytes = 1024 * 1024;

struct GridAttentionSizes {
  GridSizes grid;
  int64_t leaky, weighted, through;
};

// All but poses, activations and weight may be null.
template <class T>
struct GridAttentionForward {
  const T *poses, *activations, *weight, *key, *prior, *base, *route, *offsets;
  T *out, *mass;
};

template <class T>
struct GridAttentionBackward {
  const T *poses, *activations, *weight, *key, *prior, *base, *route, *offsets, *grad_out, *grad_mass;
  T *grad_poses, *grad_activations, *grad_weight, *grad_key, *grad_prior, *grad_base, *grad_route;
};

// One call: the problem and its plan.
template <class T>
class GridAttentionCall {
 public:
  template <class Tensors>
  GridAttentionCall(const Tensors& in, const GridAttentionSizes& s)
      : edges(checked(s).grid),
        kernels(select_kernels<GridAttentionTables<T>>()),
        problem(make_problem(in, s)),
        entries(problem.grid.all_parents() * problem.grid.out_dim()),
        keys(in.key ? entries * kernels.lanes : 0),
        state(problem.state() * kernels.lanes),
        plan(make_grid_plan(problem.grid, kernels.lanes, state * int64_t(sizeof(T)), kAttentionPartialBytes)) {}

  // Called by all threads: loads the keys of all groups.
  void load_keys(ThreadTeam& team, const T* key, T* to) const {
    if (!key) return;
    team.parallel_for(plan.groups,
                      [&](int64_t group) { kernels.load(problem, group, entries, key, to + group * keys); });
  }

  // Called by all threads: the sum of pass(block, state) over all cells, in `sums` [groups].
  template <class Pass>
  void sum(ThreadTeam& team, T* partials, T* sums, Pass pass) const {
    accumulate_cells(team, problem.grid, plan, state, partials, pass);
    team.parallel_for(plan.groups, [&](int64_t group) {
      kernels.reduce(problem, partials + group * state, plan.ranges, plan.groups * state, sums + group * state);
    });
  }

  Edges edges;
  const GridAttentionKernels<T>& kernels;
  GridAttention<T> problem;
  int64_t entries;      // columns of the keys and totals
  int64_t keys, state;  // values of one group
  GridPlan plan;

 private:
  static const GridAttentionSizes& checked(const GridAttentionSizes& s) {
    check_grid(s.grid);
    return s;
  }

  template <class Tensors>
  GridAttention<T> make_problem(const Tensors& in, const GridAttentionSizes& s) const {
    return {
        make_grid<T>(in, s.grid, edges), in.prior, in.base, in.route, s.leaky != 0, s.weighted != 0, s.through != 0};
  }
};

template <class T>
void grid_attention_forward(const GridAttentionForward<T>& to, const GridAttentionSizes& s, int threads) {
  const GridAttentionCall<T> call(to, s);
  const GridAttention<T>& q = call.problem;
  const GridPlan& plan = call.plan;
  ThreadTeam team(grid_team_size(q.grid, 1, threads));
  const int64_t scratch_bytes = call.kernels.scratch_bytes(q), lanes = call.kernels.lanes;
  char* scratch;
  T *keys, *partials, *sums;
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    keys = carver.take<T>(plan.groups * call.keys);
    partials = carver.take<T>(plan.ranges * plan.groups * call.state);
    sums = carver.take<T>(plan.groups * call.state);
  });
  team.run([&](int thread) {
    void* own = scratch + thread * scratch_bytes;
    call.load_keys(team, to.key, keys);
    call.sum(team, partials, sums, [&](const CellBlock& block, T* total) {
      call.kernels.accumulate(q, block, to.key ? keys + block.group * call.keys : nullptr, total, own);
    });
    team.parallel_for(plan.groups, [&](int64_t group) {
      const T* total = sums + group * call.state;
      call.kernels.store(q, group, call.entries, total, to.out);
      if (q.weighted) call.kernels.store(q, group, q.grid.all_parents(), total + call.entries * lanes, to.mass);
    });
  });
}

template <class T>
void grid_attention_backward(const GridAttentionBackward<T>& to, const GridAttentionSizes& s, int threads) {
  const GridAttentionCall<T> call(to, s);
  const GridAttention<T>& q = call.problem;
  const GridPlan& plan = call.plan;
  CellPartition<T> partition(q.grid, s.grid);
  ThreadTeam team(grid_team_size(q.grid, 2, threads));
  const int64_t scratch_bytes = call.kernels.scratch_bytes(q), lanes = call.kernels.lanes;
  const int64_t pairs = s.grid.kernel_height * s.grid.kernel_width * s.grid.types * s.grid.parents;
  // The gradients of the pairs: prior, base, route. Where a pair belongs to one cell, all parts of the cells have one
  // set of them together; else each part has its own.
  const int64_t prior = to.grad_prior ? pairs : 0, base = to.grad_base ? pairs : 0,
                route = to.grad_route ? pairs * q.grid.in_dim() : 0, all_pairs = prior + base + route;
  const int64_t sets = q.grid.exclusive ? 1 : partition.parts();
  char* scratch;
  T *keys, *grads, *partials, *sums, *of_pairs;
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    keys = carver.take<T>(plan.groups * call.keys);
    grads = carver.take<T>(plan.groups * call.state);
    partials = carver.take<T>(to.grad_key ? plan.ranges * plan.groups * call.state : 0);
    sums = carver.take<T>(to.grad_key ? plan.groups * call.state : 0);
    of_pairs = carver.take<T>(sets * all_pairs);
    partition.take(carver);
  });
  std::fill(of_pairs, of_pairs + sets * all_pairs, T(0));
  if (to.grad_key && !q.through) std::fill(to.grad_key, to.grad_key + q.grid.batch * call.entries, T(0));
  team.run([&](int thread) {
    void* own = scratch + thread * scratch_bytes;
    call.load_keys(team, to.key, keys);
    team.parallel_for(plan.groups, [&](int64_t group) {
      T* of_group = grads + group * call.state;
      call.kernels.load(q, group, call.entries, to.grad_out, of_group);
      if (q.weighted) call.kernels.load(q, group, q.grid.all_parents(), to.grad_mass, of_group + call.entries * lanes);
    });
    if (to.grad_key && q.through) {
      call.sum(team, partials, sums, [&](const CellBlock& block, T* total) {
        call.kernels.accumulate_key_gradients(q, block, keys + block.group * call.keys,
                                              grads + block.group * call.state, total, own);
      });
      team.parallel_for(plan.groups, [&](int64_t group) {
        call.kernels.store(q, group, call.entries, sums + group * call.state, to.grad_key);
      });
    }
    partition.run(team, q.grid, {to.grad_poses, to.grad_activations, to.grad_weight},
                  [&](int64_t part, int64_t first, int64_t last, const GridGradients<T>& gradients) {
                    T* at = of_pairs + (sets > 1 ? part : 0) * all_pairs;
                    call.kernels.backward(
                        q, first, last, to.key ? keys : nullptr, grads, gradients,
                        {prior ? at : nullptr, base ? at + prior : nullptr, route ? at + prior + base : nullptr}, own);
                  });
  });
  partition.reduce(to.grad_weight);
  const auto sum_sets = [&](int64_t from, int64_t count, T* out) {
    for (int64_t k = 0; k < count; ++k) out[k] = T{};
    for (int64_t set = 0; set < sets; ++set)
      for (int64_t k = 0; k < count; ++k) out[k] += of_pairs[set * all_pairs + from + k];
  };
  sum_sets(0, prior, to.grad_prior);
  sum_sets(prior, base, to.grad_base);
  sum_sets(prior + base, route, to.grad_route);
}

}  // namespace
}  // namespace torchcaps

TORCHCAPS_ENTRY(grid_attention_forward, grid_attention_forward, GridAttentionForward, GridAttentionSizes)
TORCHCAPS_ENTRY(grid_attention_backward, grid_attention_backward, GridAttentionBackward, GridAttentionSizes)
