// The edges between the cells of a grid and the positions of a kernel: which parents see which children.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "kernels.h"

namespace torchcaps {

// The positions whose kernel covers coordinate x of an axis: [first, last).
struct Covering {
  Covering(int64_t x, int64_t kernel, int64_t stride, int64_t positions)
      : first(x < kernel ? 0 : (x - kernel) / stride + 1), last(std::min(x / stride + 1, positions)) {}
  int64_t first, last;
};

// `Sizes` has the axes of the grid, of the positions and of the kernel, the stride and the competition.
template <class Sizes>
void check_grid(const Sizes& s) {
  if (s.stride < 1) throw std::invalid_argument("expected a stride of at least 1");
  if (s.competition < 0 || s.competition > int64_t(Competition::kPositions))
    throw std::invalid_argument("competition: expected a value from 0 to 2");
  const auto fits = [&](int64_t positions, int64_t kernel, int64_t size) {
    return positions == 0 || (positions - 1) * s.stride + kernel <= size;
  };
  if (!fits(s.rows, s.kernel_height, s.height) || !fits(s.columns, s.kernel_width, s.width))
    throw std::invalid_argument("expected a kernel that fits into the grid");
  // An edge numbers positions and cells with 32 bits; there are at most as many of either as cells of the grid.
  if (s.height > 0 && s.width > std::numeric_limits<int32_t>::max() / s.height)
    throw std::invalid_argument("expected a grid of at most 2^31 - 1 cells");
}

class Edges {
 public:
  template <class Sizes>
  explicit Edges(const Sizes& s) {
    first_.reserve(s.height * s.width + 1);
    for (int64_t y = 0; y < s.height; ++y)
      for (int64_t x = 0; x < s.width; ++x) {
        first_.push_back(int64_t(edges_.size()));
        const Covering rows(y, s.kernel_height, s.stride, s.rows), columns(x, s.kernel_width, s.stride, s.columns);
        for (int64_t row = rows.first; row < rows.last; ++row)
          for (int64_t column = columns.first; column < columns.last; ++column) {
            const int64_t kernel = (y - row * s.stride) * s.kernel_width + x - column * s.stride;
            edges_.push_back({int32_t(row * s.columns + column), int32_t(kernel)});
          }
        max_per_cell_ = std::max(max_per_cell_, int64_t(edges_.size()) - first_.back());
      }
    first_.push_back(int64_t(edges_.size()));
  }

  const Edge* edges() const { return edges_.data(); }
  // The edges of cell n are first()[n] to first()[n + 1].
  const int64_t* first() const { return first_.data(); }
  int64_t max_per_cell() const { return max_per_cell_; }

 private:
  std::vector<int64_t> first_;
  std::vector<Edge> edges_;
  int64_t max_per_cell_ = 0;
};

}  // namespace torchcaps
