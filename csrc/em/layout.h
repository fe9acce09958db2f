// A convolutional EM problem in the layout of one instruction set: weights and betas in blocks of lanes, and the edges
// between the cells of the grid and the positions of the kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/workspace.h"
#include "../grid/edges.h"
#include "kernels.h"

namespace torchcaps {

struct EmSizes {
  int64_t batch, height, width, types, rows, columns, kernel_height, kernel_width, stride, parents, iters, shared,
      competition, start_types, background;
  int64_t saved_size;  // values in the saved state of the whole batch
};

template <class T>
class EmLayout {
 public:
  static constexpr int64_t kPose = 16;

  EmLayout(const T* weight, const T* betas, const EmSizes& s, int lanes)
      : blocks_((s.parents + lanes - 1) / lanes),
        children_((s.shared ? 1 : s.kernel_height * s.kernel_width) * s.types),
        lanes_(lanes),
        edges_(s) {
    T *packed, *per_parent;
    workspace_.allocate([&](Carver& carver) {
      packed = carver.take<T>(weight_size());
      per_parent = carver.take<T>(3 * blocks_ * lanes);
    });
    std::fill(packed, packed + weight_size(), T(0));
    for (int64_t child = 0; child < children_; ++child)
      for (int64_t j = 0; j < s.parents; ++j)
        for (int64_t h = 0; h < kPose; ++h) packed[weight_at(child, j, h)] = *weight++;
    std::fill(per_parent, per_parent + 3 * blocks_ * lanes, T(0));
    for (int64_t j = 0; j < s.parents; ++j) {
      per_parent[j] = betas[j];
      per_parent[blocks_ * lanes + j] = betas[s.parents + j];
      per_parent[2 * blocks_ * lanes + j] = 1;
    }
    problem.weight = packed;
    problem.beta_u = per_parent;
    problem.beta_a = per_parent + blocks_ * lanes;
    problem.is_parent = per_parent + 2 * blocks_ * lanes;
    problem.background = s.background ? betas + 2 * s.parents : nullptr;
    problem.batch = s.batch;
    problem.cells = s.height * s.width;
    problem.types = s.types;
    problem.positions = s.rows * s.columns;
    problem.parents = s.parents;
    problem.blocks = blocks_;
    problem.iters = s.iters;
    problem.shared = s.shared;
    problem.competition = Competition(s.competition);
    problem.start_types = s.start_types;
    problem.edges = edges_.edges();
    problem.first = edges_.first();
    problem.max_edges = edges_.max_per_cell();
  }

  int64_t children() const { return children_; }
  // The size of the packed weight, and the place of entry h of the matrix from a child to parent j in it.
  int64_t weight_size() const { return children_ * blocks_ * kPose * lanes_; }
  int64_t weight_at(int64_t child, int64_t j, int64_t h) const {
    return ((child * blocks_ + j / lanes_) * kPose + h) * lanes_ + j % lanes_;
  }

  EmProblem<T> problem{};

 private:
  int64_t blocks_, children_, lanes_;
  Workspace workspace_;
  Edges edges_;
};

}  // namespace torchcaps
