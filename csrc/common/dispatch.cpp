#include "dispatch.h"

#include <cstdlib>
#include <cstring>

#include "c_api.h"

namespace torchcaps {
namespace {

const char* const kNames[] = {"portable", "avx2", "avx512"};
const int kVectorBytes[] = {16, 32, 64};

InstructionSet best_instruction_set() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return InstructionSet::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::avx2;
#endif
  return InstructionSet::portable;
}

}  // namespace

// TORCHCAPS_CPU selects a lower instruction set than the CPU has, for tests and comparisons. A higher one is ignored.
InstructionSet instruction_set() {
  static const InstructionSet chosen = [] {
    const InstructionSet best = best_instruction_set();
    const char* requested = std::getenv("TORCHCAPS_CPU");
    for (int k = 0; requested && k <= int(best); ++k)
      if (!std::strcmp(requested, kNames[k])) return InstructionSet(k);
    return best;
  }();
  return chosen;
}

}  // namespace torchcaps

TORCHCAPS_EXPORT int torchcaps_abi_version() { return torchcaps::kAbiVersion; }
TORCHCAPS_EXPORT const char* torchcaps_instruction_set() {
  return torchcaps::kNames[int(torchcaps::instruction_set())];
}
TORCHCAPS_EXPORT int torchcaps_vector_bytes() { return torchcaps::kVectorBytes[int(torchcaps::instruction_set())]; }
