// Dynamic routing from poses and weight, without storing votes: which stage runs when, and on which thread. The stages
// are in stages.inl, the mathematics in src/torchcaps/ops/dynamic/README.md.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "entry.h"
#include "stages.h"
#include "team.h"

namespace torchcaps {
namespace {

enum class Level { portable, avx2, avx512 };
const char* const kNames[] = {"portable", "avx2", "avx512"};

Level best_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return Level::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Level::avx2;
#endif
  return Level::portable;
}

// TORCHCAPS_CPU asks for a lower level than the machine has, for tests and comparisons; a higher one is not obeyed.
Level level() {
  static const Level chosen = [] {
    const Level best = best_level();
    const char* asked = std::getenv("TORCHCAPS_CPU");
    for (int k = 0; asked && k <= int(best); ++k)
      if (!std::strcmp(asked, kNames[k])) return Level(k);
    return best;
  }();
  return chosen;
}

template <class T>
const Stages<T>& stages() {
#if defined(__x86_64__)
  if (level() == Level::avx512) return *Isa<T>::avx512();
  if (level() == Level::avx2) return *Isa<T>::avx2();
#endif
  return *Isa<T>::portable();
}

struct Sizes {
  int64_t batch, children, parents, in_dim, out_dim, iters, shared, leaky, last_only;
};

template <class T>
struct Memory {
  explicit Memory(int64_t count) {
    values = static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64));
    if (!values) throw std::bad_alloc();
  }
  ~Memory() { std::free(values); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* values;
};

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

template <class T>
Problem<T> make_problem(const T* poses, const T* weight, const Sizes& s) {
  const int64_t stride = s.shared ? 0 : s.parents * s.in_dim * s.out_dim;
  return {poses, weight, s.batch, s.children, s.parents, s.in_dim, s.out_dim, stride, s.leaky != 0};
}

// A thread is worth its start from about a tenth of a millisecond of work.
int team_size(const Sizes& s, int threads) {
  const double work = double(s.batch) * s.children * s.parents * s.in_dim * s.out_dim * s.iters;
  return std::max(1, std::min(threads, 1 + int(std::min(work / 4e6, 1024.0))));
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

// poses [B, J, D] is the result; presquash [R, B, J, D], unless null, is what the backward pass starts from.
template <class T>
void forward(const T* poses, const T* weight, const T* bias, T* out, T* presquash, const Sizes& s, int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = make_problem(poses, weight, s);
  const Plan plan = make_plan(q, stage.lanes);
  const int64_t sheet = q.sheet() * stage.lanes, all = plan.groups * sheet, rows = s.batch * q.sheet();
  const int size = team_size(s, threads);
  const int64_t private_size = (stage.scratch(q, 0) + 15) / 16 * 16;
  Memory<T> memory(all * (plan.ranges + 3) + size * private_size);
  T *totals = memory.values, *sums = totals + plan.ranges * all, *current = sums + all, *parents = current + all;
  T* scratch = parents + all;
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    for (int64_t r = 0; r < s.iters; ++r) {
      sweep(team, q, plan, stage.lanes, totals, [&](int64_t group, int64_t first, int64_t last, T* total) {
        stage.gather(q, group, first, last, r ? sums + group * sheet : nullptr, total, own);
      });
      team.each(plan.groups, [&](int64_t group) {
        const int64_t at = group * sheet;
        const T scale = r ? T(1) : T(1) / T(s.parents + s.leaky);
        stage.finish(q, totals + at, int(plan.ranges), all, scale, bias, current + at);
        stage.squash(q, current + at, parents + at);
        if (presquash) stage.store(q, group, current + at, presquash + r * rows);
        if (r == s.iters - 1) stage.store(q, group, parents + at, out);
        for (int64_t k = at; k < at + sheet; ++k) sums[k] = (r ? sums[k] : T(0)) + parents[k];
      });
    }
  });
}


template <class T>
void backward(const T* poses, const T* weight, const T* presquash, const T* grad_out, T* grad_poses, T* grad_weight,
              T* grad_bias, const Sizes& s, int threads) {
  const Stages<T>& stage = stages<T>();
  const Problem<T> q = make_problem(poses, weight, s);
  const Plan plan = make_plan(q, stage.lanes);
  const int64_t sheet = q.sheet() * stage.lanes, all = plan.groups * sheet, rows = s.batch * q.sheet();
  const int64_t R = s.iters, first_term = s.last_only ? R - 1 : 0;
  const int count = int(R - first_term);
  const int size = team_size(s, threads);
  const int64_t private_size = (stage.scratch(q, count) + 15) / 16 * 16;
  // Children go to threads in pieces; where all share one weight each of a few fixed pieces has sums of its own.
  const int64_t weight_size = s.parents * s.in_dim * s.out_dim;
  const int64_t step = std::max<int64_t>(1, 64 / s.in_dim);
  const int64_t piece = s.shared ? (s.children + 15) / 16 : step;
  const int64_t pieces = (s.children + piece - 1) / piece;
  const bool apart = s.shared && grad_weight;
  Memory<T> memory(all * (2 * R + 3 + plan.ranges) + size * private_size + (apart ? pieces * weight_size : 0));
  T* sums = memory.values;
  T* grads = sums + R * all;
  T* current = grads + R * all;
  T* parents = current + all;
  T* flow = parents + all;
  T* totals = flow + all;
  T* scratch = totals + plan.ranges * all;
  T* parts = scratch + size * private_size;
  std::unique_ptr<Term<T>[]> terms(new Term<T>[plan.groups * count]);
  Team team(size);
  team.run([&](int thread) {
    T* own = scratch + thread * private_size;
    team.each(plan.groups, [&](int64_t group) {
      const int64_t at = group * sheet;
      std::fill(sums + at, sums + at + sheet, T(0));
      for (int64_t r = 0; r < R; ++r) {
        stage.load(q, group, presquash + r * rows, current + at);
        if (r == R - 1) break;
        stage.squash(q, current + at, parents + at);
        for (int64_t k = at; k < at + sheet; ++k) sums[(r + 1) * all + k] = sums[r * all + k] + parents[k];
      }
      stage.load(q, group, grad_out, flow + at);
      stage.squash_backward(q, current + at, flow + at, grads + (R - 1) * all + at);
      std::fill(flow + at, flow + at + sheet, T(0));
      for (int64_t r = first_term; r < R; ++r)
        terms[group * count + r - first_term] = {r ? sums + r * all + at : nullptr, grads + r * all + at};
    });
    for (int64_t r = R - 1; r > first_term; --r) {
      sweep(team, q, plan, stage.lanes, totals, [&](int64_t group, int64_t first, int64_t last, T* total) {
        stage.reverse(q, group, first, last, terms[group * count + r], total, own);
      });
      team.each(plan.groups, [&](int64_t group) {
        const int64_t at = group * sheet;
        stage.finish(q, totals + at, int(plan.ranges), all, T(1), nullptr, parents + at);
        for (int64_t k = at; k < at + sheet; ++k) flow[k] += parents[k];
        stage.load(q, group, presquash + (r - 1) * rows, current + at);
        stage.squash_backward(q, current + at, flow + at, grads + (r - 1) * all + at);
      });
    }
    if (!grad_poses && !grad_weight) return;
    team.each(pieces, [&](int64_t item) {
      const int64_t first = item * piece, last = std::min(first + piece, s.children);
      T* own_weight = apart ? parts + item * weight_size : grad_weight;
      if (grad_weight) {
        T* begin = apart ? own_weight : grad_weight + first * weight_size;
        std::fill(begin, begin + (apart ? 1 : last - first) * weight_size, T(0));
      }
      stage.gradients(q, first, last, terms.get(), count, !s.last_only, grad_poses, own_weight, own);
    });
  });
  for (int64_t k = 0; apart && k < weight_size; ++k) {
    T sum{};
    for (int64_t item = 0; item < pieces; ++item) sum += parts[item * weight_size + k];
    grad_weight[k] = sum;
  }
  for (int64_t k = 0; grad_bias && k < q.sheet(); ++k) {
    T sum{};
    for (int64_t r = first_term; r < R; ++r)
      for (int64_t group = 0; group < plan.groups; ++group) {
        const T* lane = grads + r * all + group * sheet + k * stage.lanes;
        T part{};
        for (int l = 0; l < stage.lanes; ++l) part += lane[l];
        sum += part;
      }
    grad_bias[k] = sum;
  }
}

}  // namespace
}  // namespace torchcaps

extern "C" {

EXPORT const char* torchcaps_instruction_set() { return torchcaps::kNames[int(torchcaps::level())]; }

#define ENTRIES(T, SUFFIX)                                                                                             \
  EXPORT int torchcaps_dynamic_forward_##SUFFIX(const T* poses, const T* weight, const T* bias, T* out,                \
                                                T* presquash, const int64_t* sizes, int threads) {                     \
    const auto& s = *reinterpret_cast<const torchcaps::Sizes*>(sizes);                                                 \
    return torchcaps::guarded([&] { torchcaps::forward<T>(poses, weight, bias, out, presquash, s, threads); });        \
  }                                                                                                                    \
  EXPORT int torchcaps_dynamic_backward_##SUFFIX(const T* poses, const T* weight, const T* presquash,                  \
                                                 const T* grad_out, T* grad_poses, T* grad_weight,                     \
                                                 T* grad_bias, const int64_t* sizes, int threads) {                    \
    const auto& s = *reinterpret_cast<const torchcaps::Sizes*>(sizes);                                                 \
    return torchcaps::guarded([&] {                                                                                    \
      torchcaps::backward<T>(poses, weight, presquash, grad_out, grad_poses, grad_weight, grad_bias, s, threads);      \
    });                                                                                                                \
  }

ENTRIES(float, f32)
ENTRIES(double, f64)
}
