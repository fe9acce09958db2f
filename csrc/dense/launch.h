// The host side that the kernels of dense layers share: the choice of kernels, the division of a pass over the children
// into ranges, memory, and threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "../common/dispatch.h"
#include "../common/threads.h"
#include "../common/workspace.h"
#include "kernels.h"

namespace torchcaps {

// How a sum over the children is divided into partial sums. It depends on the sizes alone, never on the number of
// threads, so that the sums do not either.
struct Plan {
  int64_t groups, group_blocks, ranges, children_per_range, children_per_step;
};

constexpr int64_t kGroupsPerBlock = 4;
// The size of the weights that stay in the second-level cache while several groups of samples use them.
constexpr int64_t kCachedWeightBytes = 256 * 1024;

template <class T>
Plan make_plan(const Votes<T>& q, int lanes) {
  Plan plan;
  plan.groups = (q.batch + lanes - 1) / lanes;
  plan.group_blocks = (plan.groups + kGroupsPerBlock - 1) / kGroupsPerBlock;
  const int64_t target = std::clamp<int64_t>(32 / std::max<int64_t>(plan.group_blocks, 1), 1, 16);
  plan.ranges = std::clamp<int64_t>(q.children / 16, 1, target);
  plan.children_per_range = (q.children + plan.ranges - 1) / plan.ranges;
  const int64_t weight_bytes = q.parents * q.in_dim * q.out_dim * int64_t(sizeof(T));
  plan.children_per_step = std::max<int64_t>(kCachedWeightBytes / std::max<int64_t>(weight_bytes, 1), 16);
  return plan;
}

// `Sizes` has the axes, and `shared` for a weight that all children share.
template <class T, class Sizes>
Votes<T> make_votes(const T* poses, const T* weight, const Sizes& s) {
  const int64_t stride = s.shared ? 0 : s.parents * s.in_dim * s.out_dim;
  return {poses, weight, s.batch, s.children, s.parents, s.in_dim, s.out_dim, stride};
}

// A thread pays for its start with about a tenth of a millisecond of work.
template <class T>
int team_size(const Votes<T>& q, int64_t passes, int threads) {
  const double work = double(q.batch) * q.children * q.parents * q.in_dim * q.out_dim * passes;
  return std::max(1, std::min(threads, 1 + int(std::min(work / 4e6, 1024.0))));
}

// One call of a kernel: its plan, its memory and its threads.
template <class T>
class Launch {
 public:
  // `passes` over all votes estimate the work; `terms` per group are those of backward_softmax.
  Launch(const Votes<T>& votes, int64_t passes, int terms, int threads)
      : votes(votes),
        kernels(select_kernels<DenseTables<T>>()),
        plan(make_plan(votes, kernels.lanes)),
        tile(votes.tile() * kernels.lanes),
        tiles(plan.groups * tile),
        terms_(terms),
        team_(team_size(votes, passes, threads)) {}

  // layout(carver) takes the buffers of the kernel; those of the launch itself follow. Without `sums` the launch has no
  // memory for `accumulate`.
  template <class Layout>
  void allocate(Layout layout, bool sums = true) {
    scratch_bytes_ = kernels.scratch_bytes(votes, terms_);
    workspace_.allocate([&](Carver& carver) {
      layout(carver);
      partials_ = carver.take<T>(sums ? plan.ranges * tiles : 0);
      scratch_ = carver.take<char>(team_.size() * scratch_bytes_);
    });
  }

  // Runs body(scratch) on all threads, each with scratch of its own.
  template <class Body>
  void run(const Body& body) {
    team_.run([&](int thread) { body(reinterpret_cast<T*>(scratch_ + thread * scratch_bytes_)); });
  }

  template <class Work>
  void parallel_for(int64_t items, Work work) {
    team_.parallel_for(items, work);
  }

  // Called by all threads: work(group, offset of its tile) once for every group.
  template <class Work>
  void for_each_group(Work work) {
    team_.parallel_for(plan.groups, [&](int64_t group) { work(group, group * tile); });
  }

  // Called by all threads: pass(block, total) adds the children of a block to the partial sum of a group and range.
  // reduce_partials adds up the ranges.
  template <class Pass>
  void accumulate(Pass pass) {
    team_.parallel_for(plan.ranges * plan.group_blocks, [&](int64_t item) {
      const int64_t range = item / plan.group_blocks, block = item % plan.group_blocks;
      const int64_t from = std::min(range * plan.children_per_range, votes.children);
      const int64_t to = std::min(from + plan.children_per_range, votes.children);
      const int64_t low = block * kGroupsPerBlock, high = std::min(low + kGroupsPerBlock, plan.groups);
      T* partial = partials_ + range * tiles;
      std::fill(partial + low * tile, partial + high * tile, T(0));
      for (int64_t first = from; first < to; first += plan.children_per_step)
        for (int64_t group = low; group < high; ++group)
          pass(Block{group, first, std::min(first + plan.children_per_step, to)}, partial + group * tile);
    });
  }

  // sum = scale * (sum over the ranges) + bias, for one group.
  void reduce_partials(int64_t group, T scale, const T* bias, T* sum) const {
    kernels.reduce_partials(votes, partials_ + group * tile, int(plan.ranges), tiles, scale, bias, sum);
  }

  const Votes<T> votes;
  const DenseKernels<T>& kernels;
  const Plan plan;
  const int64_t tile, tiles;  // numbers of values in the tile of one group, and in those of all groups

 private:
  int terms_;
  int64_t scratch_bytes_ = 0;
  T* partials_ = nullptr;
  char* scratch_ = nullptr;
  Workspace workspace_;
  ThreadTeam team_;
};

// The division of the children into parts whose gradients are computed by one thread each. Where all children share one
// weight, every part has its own sum of the weight gradient; their number does not depend on the number of threads.
template <class T>
class GradientPartition {
 public:
  GradientPartition(const Votes<T>& q, const Gradients<T>& to)
      : to_(to),
        weight_size_(q.parents * q.in_dim * q.out_dim),
        children_(q.weight_stride ? std::max<int64_t>(1, 64 / std::max<int64_t>(q.in_dim, 1))
                                  : std::max<int64_t>((q.children + 15) / 16, 1)),
        parts_((q.children + children_ - 1) / children_),
        separate_(!q.weight_stride && to.weight) {}

  void take(Carver& carver) { partials_ = carver.take<T>(separate_ ? parts_ * weight_size_ : 0); }

  // Called by all threads of a launch: work(first, last, destinations of the gradients of these children).
  template <class Work>
  void run(Launch<T>& launch, Work work) const {
    const Votes<T>& q = launch.votes;
    launch.parallel_for(parts_, [&](int64_t part) {
      const int64_t first = part * children_, last = std::min(first + children_, q.children);
      Gradients<T> to = to_;
      if (separate_) to.weight = partials_ + part * weight_size_;
      if (to.weight) {
        T* begin = to.weight + first * q.weight_stride;
        std::fill(begin, begin + (separate_ ? 1 : last - first) * weight_size_, T(0));
      }
      if (to.prior) std::fill(to.prior + first * q.parents, to.prior + last * q.parents, T(0));
      work(first, last, to);
    });
  }

  // Called once, after all threads are done.
  void reduce_partials() const {
    for (int64_t k = 0; separate_ && k < weight_size_; ++k) {
      T sum{};
      for (int64_t part = 0; part < parts_; ++part) sum += partials_[part * weight_size_ + k];
      to_.weight[k] = sum;
    }
  }

 private:
  Gradients<T> to_;
  int64_t weight_size_, children_, parts_;
  bool separate_;
  T* partials_ = nullptr;
};

}  // namespace torchcaps
