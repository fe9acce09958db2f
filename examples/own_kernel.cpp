// The mean of all votes for each parent, without storing the votes: out_bjd = (1/I) sum_ip poses_bip weight_ijpd.
// sizes: batch, children, parents, pose size of a child, pose size of a parent.
#include <cstdint>

namespace {

template <class Visit>
void for_each(const int64_t* n, Visit visit) {
  const auto [B, I, J, P, D] = *reinterpret_cast<const int64_t(*)[5]>(n);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < I; ++i)
      for (int64_t j = 0; j < J; ++j)
        for (int64_t p = 0; p < P; ++p)
          for (int64_t d = 0; d < D; ++d)
            visit((b * I + i) * P + p, ((i * J + j) * P + p) * D + d, (b * J + j) * D + d, 1.0f / float(I));
}

}  // namespace

extern "C" void mean_forward(const float* poses, const float* weight, float* out, const int64_t* sizes) {
  for_each(sizes, [=](int64_t u, int64_t w, int64_t v, float share) { out[v] += share * poses[u] * weight[w]; });
}

extern "C" void mean_backward(const float* poses, const float* weight, const float* grad, float* grad_poses,
                              float* grad_weight, const int64_t* sizes) {
  for_each(sizes, [=](int64_t u, int64_t w, int64_t v, float share) {
    grad_poses[u] += share * grad[v] * weight[w];
    grad_weight[w] += share * grad[v] * poses[u];
  });
}
