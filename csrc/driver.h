// What dynamic.cpp, agree.cpp and weigh.cpp share: which stages serve, how a pass over the children is divided among threads so that
// its sums have one order, and the pass that ends in gradients.
#pragma once

#include <algorithm>
#include <cstdint>

#include "level.h"
#include "memory.h"
#include "stages.h"
#include "team.h"

namespace torchcaps {

template <class T>
const Stages<T>& stages() {
#if defined(__x86_64__)
  if (level() == Level::avx512) return *Isa<T>::avx512();
  if (level() == Level::avx2) return *Isa<T>::avx2();
#endif
  return *Isa<T>::portable();
}

// How the children are divided for a pass whose sums are then added up. It depends on the sizes alone, never on the
// number of threads, so that the sums do not either.
struct Plan {
  int64_t groups, group_blocks, ranges, per_range, tile;
};

constexpr int64_t kGroupsPerBlock = 4;
// The part of the weight that stays in the second-level cache while several groups of samples pass over it.
constexpr int64_t kTileBytes = 256 * 1024;

template <class T>
Plan make_plan(const Problem<T>& q, int lanes) {
  Plan plan;
  plan.groups = (q.batch + lanes - 1) / lanes;
  plan.group_blocks = (plan.groups + kGroupsPerBlock - 1) / kGroupsPerBlock;
  const int64_t wanted = std::clamp<int64_t>(32 / std::max<int64_t>(plan.group_blocks, 1), 1, 16);
  plan.ranges = std::clamp<int64_t>(q.children / 16, 1, wanted);
  plan.per_range = (q.children + plan.ranges - 1) / plan.ranges;
  plan.tile = std::max<int64_t>(kTileBytes / (q.parents * q.in_dim * q.out_dim * int64_t(sizeof(T))), 16);
  return plan;
}

// `Sizes` has the axes and whether all children share one weight.
template <class T, class Sizes>
Problem<T> make_problem(const T* poses, const T* weight, const Sizes& s) {
  const int64_t stride = s.shared ? 0 : s.parents * s.in_dim * s.out_dim;
  return {poses, weight, s.batch, s.children, s.parents, s.in_dim, s.out_dim, stride, false, nullptr, nullptr};
}

// A thread is worth its start from about a tenth of a millisecond of work.
template <class T>
int team_size(const Problem<T>& q, int64_t passes, int threads) {
  const double work = double(q.batch) * q.children * q.parents * q.in_dim * q.out_dim * passes;
  return std::max(1, std::min(threads, 1 + int(std::min(work / 4e6, 1024.0))));
}

// How much scratch each thread gets: whole cache lines.
template <class T>
int64_t private_scratch(const Stages<T>& stage, const Problem<T>& q, int count) {
  return (stage.scratch(q, count) + 15) / 16 * 16;
}

// Runs pass(group, first, last, total) over all groups and children; totals [ranges][groups] sheets start at zero.
template <class T, class Pass>
void sweep(Team& team, const Problem<T>& q, const Plan& plan, int lanes, T* totals, Pass pass) {
  const int64_t sheet = q.sheet() * lanes;
  team.each(plan.ranges * plan.group_blocks, [&](int64_t item) {
    const int64_t range = item / plan.group_blocks, block = item % plan.group_blocks;
    const int64_t from = std::min(range * plan.per_range, q.children);
    const int64_t to = std::min(from + plan.per_range, q.children);
    const int64_t low = block * kGroupsPerBlock, high = std::min(low + kGroupsPerBlock, plan.groups);
    T* mine = totals + range * plan.groups * sheet;
    std::fill(mine + low * sheet, mine + high * sheet, T(0));
    for (int64_t first = from; first < to; first += plan.tile)
      for (int64_t group = low; group < high; ++group)
        pass(group, first, std::min(first + plan.tile, to), mine + group * sheet);
  });
}

// The pass that ends in gradients: children go to threads in pieces, and where all of them share one weight each of a few
// fixed pieces has sums of its own.
template <class T>
struct Pieces {
  Pieces(const Problem<T>& q, const Gradients<T>& to)
      : weight_size(q.parents * q.in_dim * q.out_dim), apart(!q.weight_stride && to.weight) {
    size = q.weight_stride ? std::max<int64_t>(1, 64 / q.in_dim) : (q.children + 15) / 16;
    count = (q.children + size - 1) / size;
  }

  // How many values `parts` needs room for.
  int64_t room() const { return apart ? count * weight_size : 0; }

  // Called by all threads of a running team: work(first, last, where the gradients of these children go).
  template <class Work>
  void run(Team& team, const Problem<T>& q, const Gradients<T>& to, T* parts, Work work) const {
    team.each(count, [&](int64_t item) {
      const int64_t first = item * size, last = std::min(first + size, q.children);
      Gradients<T> mine = to;
      if (apart) mine.weight = parts + item * weight_size;
      if (mine.weight) {
        T* begin = mine.weight + first * q.weight_stride;
        std::fill(begin, begin + (apart ? 1 : last - first) * weight_size, T(0));
      }
      if (mine.prior) std::fill(mine.prior + first * q.parents, mine.prior + last * q.parents, T(0));
      work(first, last, mine);
    });
  }

  // Called once, when the team is done.
  void add_up(const T* parts, const Gradients<T>& to) const {
    for (int64_t k = 0; apart && k < weight_size; ++k) {
      T sum{};
      for (int64_t item = 0; item < count; ++item) sum += parts[item * weight_size + k];
      to.weight[k] = sum;
    }
  }

  int64_t weight_size, size, count;
  bool apart;
};

}  // namespace torchcaps
