// The host side that the kernels over a grid share: the grid itself, the division of a pass over its cells, and
// threads. The division depends on the sizes alone, never on the number of threads or samples, so that the sums do not
// either.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/dispatch.h"
#include "../common/threads.h"
#include "../common/workspace.h"
#include "edges.h"
#include "kernels.h"

namespace torchcaps {

struct GridSizes {
  int64_t batch, height, width, types, rows, columns, kernel_height, kernel_width, stride, parents, vote_rows, inner,
      vote_columns, shared, competition, start_types;
};

template <class T, class Tensors>
Grid<T> make_grid(const Tensors& in, const GridSizes& s, const Edges& edges) {
  Grid<T> grid{};
  grid.poses = in.poses;
  grid.activations = in.activations;
  grid.weight = in.weight;
  grid.offsets = in.offsets;
  grid.edges = edges.edges();
  grid.first = edges.first();
  grid.max_edges = edges.max_per_cell();
  grid.batch = s.batch;
  grid.cells = s.height * s.width;
  grid.types = s.types;
  grid.positions = s.rows * s.columns;
  grid.parents = s.parents;
  grid.vote_rows = s.vote_rows;
  grid.inner = s.inner;
  grid.vote_columns = s.vote_columns;
  grid.competition = Competition(s.competition);
  grid.shared = s.shared;
  grid.start_types = s.start_types;
  grid.exclusive = !s.shared && s.kernel_height == s.height && s.kernel_width == s.width;
  return grid;
}

// A sum over the cells is divided into ranges; within a range, groups of samples take turns at steps of cells.
struct GridPlan {
  int64_t groups, group_blocks, ranges, cells_per_range, cells_per_step;
};

constexpr int64_t kGridGroupsPerBlock = 4;
// The size of the weights that stay in the second-level cache while several groups of samples use them.
constexpr int64_t kGridCachedBytes = 256 * 1024;
// The size of all partial sums of one group.
constexpr int64_t kPartialBytes = 4 * 1024 * 1024;

template <class T>
GridPlan make_grid_plan(const Grid<T>& q, int lanes, int64_t state_bytes, int64_t partial_bytes = kPartialBytes) {
  GridPlan plan;
  plan.groups = (q.batch + lanes - 1) / lanes;
  plan.group_blocks = (plan.groups + kGridGroupsPerBlock - 1) / kGridGroupsPerBlock;
  const int64_t most = std::clamp<int64_t>(partial_bytes / std::max<int64_t>(state_bytes, 1), 1, 8);
  plan.ranges = std::clamp<int64_t>(q.cells * q.types / 64, 1, most);
  plan.cells_per_range = (q.cells + plan.ranges - 1) / plan.ranges;
  const int64_t weight_bytes = q.types * q.parents * q.matrix() * int64_t(sizeof(T));
  // Where cells share the weights, all of them are in use at once anyway.
  plan.cells_per_step = q.exclusive ? std::max<int64_t>(kGridCachedBytes / std::max<int64_t>(weight_bytes, 1), 16)
                                    : std::max<int64_t>(q.cells, 1);
  return plan;
}

// A thread pays for its start with about a tenth of a millisecond of work.
template <class T>
int grid_team_size(const Grid<T>& q, int64_t passes, int threads) {
  const double votes = double(q.batch) * q.first[q.cells] * q.types * q.parents;
  const double work = votes * q.out_dim() * (q.inner + 4) * passes;
  return std::max(1, std::min(threads, 1 + int(std::min(work / 4e6, 1024.0))));
}

// Called by all threads of a team: pass(block, total) adds the cells of a block to the partial sums of a group and
// range, which begin as zero. `partials` holds [ranges][groups] states of `state` values.
template <class T, class Pass>
void accumulate_cells(ThreadTeam& team, const Grid<T>& q, const GridPlan& plan, int64_t state, T* partials, Pass pass) {
  team.parallel_for(plan.ranges * plan.group_blocks, [&](int64_t item) {
    const int64_t range = item / plan.group_blocks, block = item % plan.group_blocks;
    const int64_t from = std::min(range * plan.cells_per_range, q.cells);
    const int64_t to = std::min(from + plan.cells_per_range, q.cells);
    const int64_t low = block * kGridGroupsPerBlock, high = std::min(low + kGridGroupsPerBlock, plan.groups);
    T* partial = partials + range * plan.groups * state;
    std::fill(partial + low * state, partial + high * state, T(0));
    for (int64_t first = from; first < to; first += plan.cells_per_step)
      for (int64_t group = low; group < high; ++group)
        pass(CellBlock{group, first, std::min(first + plan.cells_per_step, to)}, partial + group * state);
  });
}

// The division of the cells into parts whose gradients are computed by one thread each. Where cells share weights,
// every part has its own sum of the weight gradient.
template <class T>
class CellPartition {
 public:
  CellPartition(const Grid<T>& q, const GridSizes& s)
      : weight_size_((s.shared ? 1 : s.kernel_height * s.kernel_width) * s.types * q.parents * q.matrix()),
        cell_size_(s.types * q.parents * q.matrix()),
        cells_(std::max<int64_t>(1, (q.cells + 15) / 16)),
        parts_((q.cells + cells_ - 1) / cells_),
        separate_(!q.exclusive) {
    if (separate_) {
      // At most 16 MB of partial sums, or one part.
      const int64_t most = std::clamp<int64_t>((int64_t(16) << 20) / (weight_size_ * int64_t(sizeof(T)) + 1), 1, 8);
      cells_ = std::max<int64_t>(1, (q.cells + most - 1) / most);
      parts_ = (q.cells + cells_ - 1) / cells_;
    }
  }

  int64_t parts() const { return parts_; }
  void take(Carver& carver) { partials_ = carver.take<T>(separate_ ? parts_ * weight_size_ : 0); }

  // Called by all threads of a team: work(part, first, last, destinations of the gradients of these cells).
  template <class Work>
  void run(ThreadTeam& team, const Grid<T>& q, const GridGradients<T>& to, Work work) const {
    team.parallel_for(parts_, [&](int64_t part) {
      const int64_t first = part * cells_, last = std::min(first + cells_, q.cells);
      GridGradients<T> own = to;
      if (separate_) {
        own.weight = partials_ + part * weight_size_;
        std::fill(own.weight, own.weight + weight_size_, T(0));
      } else {
        std::fill(own.weight + first * cell_size_, own.weight + last * cell_size_, T(0));
      }
      work(part, first, last, own);
    });
  }

  // Called once, after all threads are done.
  void reduce(T* weight) const {
    for (int64_t k = 0; separate_ && k < weight_size_; ++k) {
      T sum{};
      for (int64_t part = 0; part < parts_; ++part) sum += partials_[part * weight_size_ + k];
      weight[k] = sum;
    }
  }

 private:
  int64_t weight_size_, cell_size_, cells_, parts_;
  bool separate_;
  T* partials_ = nullptr;
};

}  // namespace torchcaps
