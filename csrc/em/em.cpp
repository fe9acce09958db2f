// EM routing over a grid, from poses and weight without stored votes: the division of a batch among threads.
// kernels.inl computes one sample; the derivation is in src/torchcaps/ops/em/README.md.
#include <algorithm>
#include <stdexcept>

#include "../common/c_api.h"
#include "../common/dispatch.h"
#include "../common/threads.h"
#include "layout.h"

namespace torchcaps {
namespace {

// `betas` holds beta_u and beta_a of each parent and, where there is one, the background in its third row. `constants`
// holds the variance floor, the mass floor, the momentum, and the inverse temperature and the sharpness of each
// iteration.
template <class T>
struct EmForward {
  const T *poses, *weight, *activations, *betas, *offsets, *constants;  // offsets may be null
  T *out, *out_activations, *saved;                                     // saved may be null
};

template <class T>
struct EmBackward {
  const T *poses, *weight, *activations, *betas, *offsets, *constants, *saved, *grad_out, *grad_out_activations;
  T *grad_poses, *grad_activations, *grad_weight, *grad_betas;
};

// The gradients of weight and betas are summed within chunks of samples, then over the chunks. The number of chunks
// does not depend on the number of threads, so that the sums do not either.
constexpr int64_t kChunks = 16;

// At least one thread, also for an empty batch.
int em_team_size(int threads, int64_t items) { return int(std::clamp<int64_t>(items, 1, std::max(threads, 1))); }

template <class T, class Tensors>
void set_inputs(EmProblem<T>& problem, const Tensors& in) {
  constexpr int64_t kSingle = 3;
  problem.poses = in.poses;
  problem.activations = in.activations;
  problem.offsets = in.offsets;
  problem.variance_floor = in.constants[0];
  problem.mass_floor = in.constants[1];
  problem.momentum = in.constants[2];
  problem.inverse_temp = in.constants + kSingle;
  problem.sharpness = in.constants + kSingle + problem.iters;
}

void check(const EmSizes& s) {
  if (s.iters < 1) throw std::invalid_argument("expected at least one iteration");
  check_grid(s);
}

template <class T>
void check_saved(const EmKernels<T>& kernels, const EmProblem<T>& q, const EmSizes& s) {
  if (s.saved_size != q.batch * kernels.saved_size(q))
    throw std::invalid_argument("saved state: expected the size of this problem, got another one");
}

template <class T>
void em_forward(const EmForward<T>& to, const EmSizes& s, int threads) {
  check(s);
  const EmKernels<T>& kernels = select_kernels<EmTables<T>>();
  EmLayout<T> layout(to.weight, to.betas, s, kernels.lanes);
  set_inputs(layout.problem, to);
  const EmProblem<T>& q = layout.problem;
  const int64_t per_sample = kernels.saved_size(q), out = q.positions * q.parents;
  if (to.saved) check_saved(kernels, q, s);
  ThreadTeam team(em_team_size(threads, q.batch));
  const int64_t scratch_bytes = kernels.scratch_bytes(q, false);
  char* scratch;
  T* own_saved;  // without gradients, each thread reuses the state of one sample
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    own_saved = carver.take<T>(to.saved ? 0 : team.size() * per_sample);
  });
  team.run([&](int thread) {
    team.parallel_for(q.batch, [&](int64_t b) {
      T* saved = to.saved ? to.saved + b * per_sample : own_saved + thread * per_sample;
      kernels.forward(q, b, to.out + b * out * layout.kPose, to.out_activations + b * out, saved,
                      scratch + thread * scratch_bytes);
    });
  });
}

template <class T>
void em_backward(const EmBackward<T>& to, const EmSizes& s, int threads) {
  check(s);
  const EmKernels<T>& kernels = select_kernels<EmTables<T>>();
  EmLayout<T> layout(to.weight, to.betas, s, kernels.lanes);
  set_inputs(layout.problem, to);
  const EmProblem<T>& q = layout.problem;
  check_saved(kernels, q, s);
  const int64_t per_sample = kernels.saved_size(q), out = q.positions * q.parents, children = q.cells * q.types;
  const int64_t weights = layout.weight_size(), betas = 2 * q.blocks * kernels.lanes;
  const int64_t sums = weights + betas + kernels.lanes;
  const int64_t chunks = std::min(kChunks, q.batch), scratch_bytes = kernels.scratch_bytes(q, true);
  ThreadTeam team(em_team_size(threads, chunks));
  char* scratch;
  T* partials;  // [chunks][sums]
  Workspace workspace;
  workspace.allocate([&](Carver& carver) {
    scratch = carver.take<char>(team.size() * scratch_bytes);
    partials = carver.take<T>(chunks * sums);
  });
  team.run([&](int thread) {
    team.parallel_for(chunks, [&](int64_t chunk) {
      T* own = partials + chunk * sums;
      std::fill(own, own + sums, T(0));
      for (int64_t b = chunk * q.batch / chunks; b < (chunk + 1) * q.batch / chunks; ++b)
        kernels.backward(
            q, b, to.saved + b * per_sample, to.grad_out + b * out * layout.kPose, to.grad_out_activations + b * out,
            {to.grad_poses + b * children * layout.kPose, to.grad_activations + b * children, own, own + weights},
            scratch + thread * scratch_bytes);
    });
  });
  const auto total = [&](int64_t at) {
    T sum{};
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partials[chunk * sums + at];
    return sum;
  };
  T* grad_weight = to.grad_weight;
  for (int64_t child = 0; child < layout.children(); ++child)
    for (int64_t j = 0; j < q.parents; ++j)
      for (int64_t h = 0; h < layout.kPose; ++h) *grad_weight++ = total(layout.weight_at(child, j, h));
  for (int64_t j = 0; j < q.parents; ++j) {
    to.grad_betas[j] = total(weights + j);
    to.grad_betas[q.parents + j] = total(weights + q.blocks * kernels.lanes + j);
  }
  if (!q.background) return;
  // The background is the same number for all parents: its first copy has the gradient of all.
  T* grad_background = to.grad_betas + 2 * q.parents;
  std::fill(grad_background, grad_background + q.parents, T(0));
  for (int64_t l = 0; l < kernels.lanes; ++l) *grad_background += total(weights + betas + l);
}

}  // namespace
}  // namespace torchcaps

TORCHCAPS_ENTRY(em_forward, em_forward, EmForward, EmSizes)
TORCHCAPS_ENTRY(em_backward, em_backward, EmBackward, EmSizes)
