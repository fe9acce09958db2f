// EM routing over a grid from poses and weight, without storing votes: how the work is laid out and shared among threads. The
// work on one sample is in em.inl, the mathematics in src/torchcaps/ops/em/README.md.
#include "entry.h"
#include "em.h"

#include <algorithm>
#include <vector>

#include "level.h"
#include "memory.h"
#include "team.h"

namespace torchcaps {
namespace {

// As the caller passes them, in this order.
struct EmSizes {
  int64_t batch, height, width, types, rows, columns, kernel_height, kernel_width, stride, parents, iters, shared, local;
};

template <class T>
const EmStages<T>& stages() {
#if defined(__x86_64__)
  if (level() == Level::avx512) return *EmIsa<T>::avx512();
  if (level() == Level::avx2) return *EmIsa<T>::avx2();
#endif
  return *EmIsa<T>::portable();
}

// Every sample's gradient of the weight is added up within its chunk, then the chunks are. There are never more than this many,
// whatever the number of threads, so that the sums do not depend on it.
constexpr int64_t kChunks = 16;

// No more threads than there is work for; one also where the batch is empty, since a team of none would wait for ever.
int team_size(int threads, int64_t items) { return int(std::clamp<int64_t>(items, 1, std::max(threads, 1))); }

// The problem in the layout of one instruction set: weights and betas in blocks of lanes, and who sees whom.
template <class T>
struct Layout {
  Layout(const T* weight, const T* betas, const T* inverse, const EmSizes& s, int lanes)
      : blocks((s.parents + lanes - 1) / lanes),
        children((s.shared ? 1 : s.kernel_height * s.kernel_width) * s.types),
        weights(children * blocks * 16 * lanes),
        packed(weights),
        per_parent(3 * blocks * lanes),
        first(s.height * s.width + 1) {
    std::fill(packed.values, packed.values + weights, T(0));
    for (int64_t child = 0; child < children; ++child)
      for (int64_t j = 0; j < s.parents; ++j)
        for (int64_t h = 0; h < 16; ++h)
          packed.values[((child * blocks + j / lanes) * 16 + h) * lanes + j % lanes] = *weight++;
    std::fill(per_parent.values, per_parent.values + 3 * blocks * lanes, T(0));
    for (int64_t j = 0; j < s.parents; ++j) {
      per_parent.values[j] = betas[j];
      per_parent.values[blocks * lanes + j] = betas[s.parents + j];
      per_parent.values[2 * blocks * lanes + j] = 1;
    }
    int64_t most = 0;
    for (int64_t y = 0; y < s.height; ++y)
      for (int64_t x = 0; x < s.width; ++x) {
        first[y * s.width + x] = int64_t(edges.size());
        for (int64_t row = 0; row < s.rows; ++row)
          for (int64_t column = 0; column < s.columns; ++column) {
            const int64_t ky = y - row * s.stride, kx = x - column * s.stride;
            if (ky >= 0 && ky < s.kernel_height && kx >= 0 && kx < s.kernel_width)
              edges.push_back({int32_t(row * s.columns + column), int32_t(ky * s.kernel_width + kx)});
          }
        most = std::max(most, int64_t(edges.size()) - first[y * s.width + x]);
      }
    first.back() = int64_t(edges.size());
    problem.weight = packed.values;
    problem.beta_u = per_parent.values;
    problem.beta_a = per_parent.values + blocks * lanes;
    problem.real = per_parent.values + 2 * blocks * lanes;
    problem.inverse = inverse;
    problem.edges = edges.data();
    problem.first = first.data();
    problem.batch = s.batch;
    problem.places = s.height * s.width;
    problem.types = s.types;
    problem.positions = s.rows * s.columns;
    problem.parents = s.parents;
    problem.blocks = blocks;
    problem.iters = s.iters;
    problem.most_edges = most;
    problem.shared = s.shared;
    problem.local = s.local;
  }

  int64_t blocks, children, weights;
  Memory<T> packed, per_parent;
  std::vector<int64_t> first;
  std::vector<Edge> edges;
  EmProblem<T> problem;
};

template <class T>
struct Inputs {
  const T *poses, *activations, *weight, *betas, *offsets, *constants;  // constants: variance floor, mass floor, inverse temps
};

template <class T>
void fill(Layout<T>& layout, const Inputs<T>& in) {
  layout.problem.poses = in.poses;
  layout.problem.activations = in.activations;
  layout.problem.offsets = in.offsets;
  layout.problem.floor = in.constants[0];
  layout.problem.mass = in.constants[1];
}

template <class T>
void forward(const Inputs<T>& in, T* poses, T* activations, T* kept, const EmSizes& s, int threads) {
  const EmStages<T>& stage = stages<T>();
  Layout<T> layout(in.weight, in.betas, in.constants + 2, s, stage.lanes);
  fill(layout, in);
  const EmProblem<T>& q = layout.problem;
  const int64_t per_sample = stage.kept(q), out = q.positions * q.parents, scratch = (stage.scratch(q, false) + 15) / 16 * 16;
  const int size = team_size(threads, q.batch);
  Memory<T> room(size * scratch);
  // Where nobody asks for gradients, a thread keeps one sample's iterations and writes over them.
  Memory<T> own(kept ? 0 : size * per_sample);
  Team team(size);
  team.run([&](int thread) {
    team.each(q.batch, [&](int64_t b) {
      stage.forward(q, b, poses + b * out * 16, activations + b * out,
                    kept ? kept + b * per_sample : own.values + thread * per_sample, room.values + thread * scratch);
    });
  });
}

template <class T>
void backward(const Inputs<T>& in, const T* kept, const T* grad_poses, const T* grad_activations, T* grad_child_poses,
              T* grad_child_activations, T* grad_weight, T* grad_betas, const EmSizes& s, int threads) {
  const EmStages<T>& stage = stages<T>();
  const int lanes = stage.lanes;
  Layout<T> layout(in.weight, in.betas, in.constants + 2, s, lanes);
  fill(layout, in);
  const EmProblem<T>& q = layout.problem;
  const int64_t per_sample = stage.kept(q), out = q.positions * q.parents, scratch = (stage.scratch(q, true) + 15) / 16 * 16;
  const int64_t children = q.places * q.types, chunks = std::min(kChunks, q.batch);
  const int64_t betas = 2 * q.blocks * lanes, sums = layout.weights + betas;
  const int size = team_size(threads, chunks);
  Memory<T> room(size * scratch), partial(chunks * sums);
  Team team(size);
  team.run([&](int thread) {
    team.each(chunks, [&](int64_t chunk) {
      T* own = partial.values + chunk * sums;
      std::fill(own, own + sums, T(0));
      for (int64_t b = chunk * q.batch / chunks; b < (chunk + 1) * q.batch / chunks; ++b)
        stage.backward(q, b, kept + b * per_sample, grad_poses + b * out * 16, grad_activations + b * out,
                       grad_child_poses + b * children * 16, grad_child_activations + b * children, own,
                       own + layout.weights, room.values + thread * scratch);
    });
  });
  const auto total = [&](int64_t at) {
    T sum{};
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial.values[chunk * sums + at];
    return sum;
  };
  for (int64_t child = 0; child < layout.children; ++child)
    for (int64_t j = 0; j < q.parents; ++j)
      for (int64_t h = 0; h < 16; ++h) *grad_weight++ = total(((child * q.blocks + j / lanes) * 16 + h) * lanes + j % lanes);
  for (int64_t j = 0; j < q.parents; ++j) {
    grad_betas[j] = total(layout.weights + j);
    grad_betas[q.parents + j] = total(layout.weights + q.blocks * lanes + j);
  }
}

}  // namespace
}  // namespace torchcaps

extern "C" {

#define ENTRIES(T, SUFFIX)                                                                                                  \
  EXPORT int64_t torchcaps_em_lanes_##SUFFIX() { return torchcaps::stages<T>().lanes; }                                     \
  EXPORT int torchcaps_em_forward_##SUFFIX(const T* poses, const T* weight, const T* activations, const T* betas,                  \
                                    const T* offsets, const T* constants, T* out, T* out_activations, T* kept,              \
                                    const int64_t* sizes, int threads) {                                                    \
    const auto& s = *reinterpret_cast<const torchcaps::EmSizes*>(sizes);                                                    \
    const torchcaps::Inputs<T> in{poses, activations, weight, betas, offsets, constants};                                   \
    return torchcaps::guarded([&] { torchcaps::forward<T>(in, out, out_activations, kept, s, threads); });                  \
  }                                                                                                                         \
  EXPORT int torchcaps_em_backward_##SUFFIX(const T* poses, const T* weight, const T* activations, const T* betas,                 \
                                     const T* offsets, const T* constants, const T* kept, const T* grad_out,                \
                                     const T* grad_out_activations, T* grad_poses, T* grad_activations, T* grad_weight,     \
                                     T* grad_betas, const int64_t* sizes, int threads) {                                    \
    const auto& s = *reinterpret_cast<const torchcaps::EmSizes*>(sizes);                                                    \
    const torchcaps::Inputs<T> in{poses, activations, weight, betas, offsets, constants};                                   \
    return torchcaps::guarded([&] {                                                                                         \
      torchcaps::backward<T>(in, kept, grad_out, grad_out_activations, grad_poses, grad_activations, grad_weight,           \
                             grad_betas, s, threads);                                                                       \
    });                                                                                                                     \
  }

ENTRIES(float, f32)
ENTRIES(double, f64)
}
