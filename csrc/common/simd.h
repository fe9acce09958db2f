// Vector types of GCC and Clang, their exponential, and transposition. Included once per instruction set inside an
// unnamed namespace, so that the linker cannot merge functions that were compiled for different instruction sets. For
// the same reason kernels use no functions of the standard library other than those of <cmath>.

template <class T, int Bytes>
struct Lanes;
template <int Bytes>
struct Lanes<float, Bytes> {
  typedef float Vec __attribute__((vector_size(Bytes), may_alias));
  // For memory of the caller, which is aligned to one value only.
  typedef float Unaligned __attribute__((vector_size(Bytes), aligned(4), may_alias));
  typedef int32_t Bits __attribute__((vector_size(Bytes)));
};
template <int Bytes>
struct Lanes<double, Bytes> {
  typedef double Vec __attribute__((vector_size(Bytes), may_alias));
  typedef double Unaligned __attribute__((vector_size(Bytes), aligned(8), may_alias));
  typedef int64_t Bits __attribute__((vector_size(Bytes)));
};

#define INLINE __attribute__((always_inline)) inline
#define INLINE_LAMBDA __attribute__((always_inline))

template <int N>
struct Int {
  static constexpr int value = N;
};

// exp(x) for x <= 0 with an error of about one unit in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, Taylor in
// r, times 2^n. ln 2 is split so that n times its first part is exact. The result is at least the smallest normal
// number; NaN stays NaN.
template <int Bytes>
INLINE auto exp_negative(typename Lanes<float, Bytes>::Vec x, float) {
  using L = Lanes<float, Bytes>;
  using Vec = typename L::Vec;
  using Bits = typename L::Bits;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integers, which the low bits hold
  const Vec least = Vec{} - 87.0f;
  x = x < least ? least : x;
  Vec t = x * 1.44269504088896341f + magic;
  Vec n = t - magic;
  Vec r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec y = r * (1.0f / 5040) + 1.0f / 720;
  y = y * r + 1.0f / 120;
  y = y * r + 1.0f / 24;
  y = y * r + 1.0f / 6;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  Bits power = ((Bits)t - 0x4B400000 + 127) << 23;
  return y * (Vec)power;
}

template <int Bytes>
INLINE auto exp_negative(typename Lanes<double, Bytes>::Vec x, double) {
  using L = Lanes<double, Bytes>;
  using Vec = typename L::Vec;
  using Bits = typename L::Bits;
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const Vec least = Vec{} - 708.0;
  x = x < least ? least : x;
  Vec t = x * 1.44269504088896340736 + magic;
  Vec n = t - magic;
  Vec r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  Vec y = Vec{} + 1.0 / 6227020800.0;
  const double taylor[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  for (double coefficient : taylor) y = y * r + coefficient;
  Bits power = ((Bits)t - 0x4338000000000000 + 1023) << 52;
  return y * (Vec)power;
}

// Permutations of lanes for transposition and horizontal sums; `Is` enumerates the lanes.
template <int... Is>
struct Seq {};
template <int N, int... Is>
struct MakeSeq : MakeSeq<N - 1, N - 1, Is...> {};
template <int... Is>
struct MakeSeq<0, Is...> {
  using type = Seq<Is...>;
};

template <class Vec, int... Is>
INLINE Vec zip_low(Vec a, Vec b, Seq<Is...>) {
  return __builtin_shufflevector(a, b, (Is / 2 + (Is % 2) * (int)sizeof...(Is))...);
}
template <class Vec, int... Is>
INLINE Vec zip_high(Vec a, Vec b, Seq<Is...>) {
  constexpr int n = sizeof...(Is);
  return __builtin_shufflevector(a, b, (n / 2 + Is / 2 + (Is % 2) * n)...);
}
template <class Vec, int... Is>
INLINE Vec add_pairs(Vec a, Vec b, Seq<Is...>) {
  return __builtin_shufflevector(a, b, (2 * Is)...) + __builtin_shufflevector(a, b, (2 * Is + 1)...);
}

// Transposes N rows of N lanes: log2(N) rounds, each of which interleaves the first half of the rows with the second.
template <int N, class Vec>
INLINE void transpose(Vec* rows) {
  using S = typename MakeSeq<N>::type;
  Vec next[N];
  for (int round = 1; round < N; round *= 2) {
    for (int k = 0; k < N / 2; ++k) {
      next[2 * k] = zip_low(rows[k], rows[k + N / 2], S{});
      next[2 * k + 1] = zip_high(rows[k], rows[k + N / 2], S{});
    }
    for (int k = 0; k < N; ++k) rows[k] = next[k];
  }
}

// Lane k of the result is the sum of all lanes of rows[k].
template <int N, class Vec>
INLINE Vec add_across(Vec* rows) {
  using S = typename MakeSeq<N>::type;
  for (int left = N; left > 1; left /= 2)
    for (int k = 0; k < left / 2; ++k) rows[k] = add_pairs(rows[2 * k], rows[2 * k + 1], S{});
  return rows[0];
}
