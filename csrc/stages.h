// What dynamic.cpp, agree.cpp and weigh.cpp ask of one instruction set; the derivations are in the README.md of
// src/torchcaps/ops/dynamic, agreement and self_routing.
#pragma once

#include <cstdint>

namespace torchcaps {

// Axes as everywhere in torchcaps: B batch, I children, J parents, P and D their pose sizes. Samples go in groups of
// `lanes`, one sample per vector lane; what is kept per group is [J*D][lanes], called a sheet below.
template <class T>
struct Problem {
  const T* poses;   // [B, I, P]
  const T* weight;  // [I, J, P, D], or [J, P, D]
  int64_t batch, children, parents, in_dim, out_dim;
  int64_t weight_stride;  // from one child's weight to the next one's; 0 when all share one
  bool leaky;
  const T* prior;  // [I, J], added to coupling that came from logits; null for none
  const T* share;  // [I, J, B], the coupling where it is given; null where it follows from the votes

  int64_t sheet() const { return parents * out_dim; }
};

// One iteration as the gradients need it, for one group: where the logits come from and what flows back.
template <class T>
struct Term {
  const T* sums;       // sheet: the sum of the parents' poses before this iteration; null where coupling is uniform
  const T* presquash;  // sheet: the gradient of the iteration's presquash
};

// Where gradients go; each may be null. That of the prior needs a term with logits, and is added to what is there; that
// of the share is for `weigh_gradients`.
template <class T>
struct Gradients {
  T* poses;   // [B, I, P]
  T* weight;  // [I, J, P, D], or [J, P, D]; added to what is there
  T* prior;   // [I, J]
  T* share = nullptr;  // [I, J, B]
};

constexpr int kMaxGroupChunk = 8;

template <class T>
struct Stages {
  int lanes;
  // total += sum over children of coupling * vote; a null `sums` takes the share for it, or leaves the uniform one out.
  void (*gather)(const Problem<T>&, int64_t group, int64_t first, int64_t last, const T* sums, T* total, T* scratch);
  // total += sum over children of (gradient of the logit) * vote, given the gradient of the presquash.
  void (*reverse)(const Problem<T>&, int64_t group, int64_t first, int64_t last, const Term<T>&, T* total, T* scratch);
  // Gradients of the poses, weights and priors of children [first, last). `terms` is [groups][count]; only the first of
  // them may be uniform.
  void (*gradients)(const Problem<T>&, int64_t first, int64_t last, const Term<T>* terms, int count, bool through,
                    const Gradients<T>&, T* scratch);
  // Gradients of the share, poses and weights of children [first, last), given those of the totals, [groups] sheets.
  void (*weigh_gradients)(const Problem<T>&, int64_t first, int64_t last, const T* grad_totals, const Gradients<T>&,
                          T* scratch);
  // presquash = scale * (sum of `parts` partial totals, `stride` apart) + bias.
  void (*finish)(const Problem<T>&, const T* parts, int count, int64_t stride, T scale, const T* bias, T* presquash);
  void (*squash)(const Problem<T>&, const T* presquash, T* poses);
  void (*squash_backward)(const Problem<T>&, const T* presquash, const T* grad_poses, T* grad_presquash);
  // Between [B, J*D] and the sheet of one group.
  void (*load)(const Problem<T>&, int64_t group, const T* rows, T* sheet);
  void (*store)(const Problem<T>&, int64_t group, const T* sheet, T* rows);
  // How many values of scratch a thread needs for the passes above; `weigh_gradients` counts as one term.
  int64_t (*scratch)(const Problem<T>&, int count);
};

template <class T>
struct Isa {
  static const Stages<T>* portable();
  static const Stages<T>* avx2();
  static const Stages<T>* avx512();
};

}  // namespace torchcaps
