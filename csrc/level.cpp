#include "level.h"

#include <cstdlib>
#include <cstring>

#include "entry.h"

namespace torchcaps {
namespace {

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

}  // namespace

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

}  // namespace torchcaps

extern "C" EXPORT const char* torchcaps_instruction_set() { return torchcaps::kNames[int(torchcaps::level())]; }
