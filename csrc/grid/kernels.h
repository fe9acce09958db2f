// What the kernels over a grid share: children in the cells of a grid, parents at the positions of a kernel, and votes
// that are recomputed and never stored. A dense layer is a grid of one child per cell with one position that covers it.
#pragma once

#include <cstdint>

namespace torchcaps {

// One parent position that receives votes from a cell of the grid, and the cell of the kernel between them.
struct Edge {
  int32_t position, kernel;
};

// The parents among which a child divides itself: all that see it, those at one position, or those of one type.
enum class Competition : int64_t { kGlobal, kLocal, kPositions };

// Axes: B batch, cells of the grid (H*W) with I child types each, positions of the kernel (H'*W') with J parents each.
//
// A vote is the product of a pose [vote_rows, inner] and a matrix [inner, vote_columns]: vote_rows is 1 for vectors,
// and all three are the side of square pose matrices. Samples are processed in groups of `lanes`, one sample per vector
// lane.
template <class T>
struct Grid {
  const T* poses;        // [B, cells, I, P]
  const T* activations;  // [B, cells, I]
  const T* weight;       // [K*K*I or I, J, inner, vote_columns]
  const T* offsets;      // [K*K, 2], added to the first two entries of the votes; or null
  const Edge* edges;
  const int64_t* first;  // [cells + 1]: the edges of cell n are first[n] to first[n + 1]
  int64_t batch, cells, types, positions, parents, max_edges;
  int64_t vote_rows, inner, vote_columns;
  Competition competition;
  bool shared;       // one weight for all cells of the kernel
  bool start_types;  // a first coupling of 1/J, whatever the competition
  bool exclusive;    // every matrix of the weight belongs to one cell alone

  int64_t in_dim() const { return vote_rows * inner; }
  int64_t out_dim() const { return vote_rows * vote_columns; }
  int64_t matrix() const { return inner * vote_columns; }
  int64_t all_parents() const { return positions * parents; }
  // The place in the weight of the matrices from a child to all parents of an edge.
  int64_t weight_at(const Edge& edge, int64_t type) const {
    return (shared ? type : edge.kernel * types + type) * parents * matrix();
  }
};

// The cells [first, last) of one group of samples.
struct CellBlock {
  int64_t group, first, last;
};

// The gradients of the children and the weight; that of the weight is added to its contents.
template <class T>
struct GridGradients {
  T *poses, *activations, *weight;
};

}  // namespace torchcaps
