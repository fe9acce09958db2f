#include "dispatch.h"

#include <cstdlib>
#include <cstring>

#include "c_api.h"

#if defined(TORCHCAPS_X86)
#include <cpuid.h>
#endif

namespace torchcaps {
namespace {

const char* const kNames[] = {"portable", "avx2", "avx512"};
const int kVectorBytes[] = {16, 32, 64};

#if defined(TORCHCAPS_X86)
// Read from the CPU directly: __builtin_cpu_supports needs a run-time library that clang-cl does not link.
InstructionSet best_instruction_set() {
  unsigned eax, ebx, ecx, edx;
  const auto has = [](unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; };
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !has(ecx, bit_FMA | bit_OSXSAVE)) return InstructionSet::portable;
  unsigned saved, high;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return InstructionSet::portable;
  // The operating system must save the registers as well: 0x06 are those of AVX, 0xe6 also those of AVX-512.
#if defined(TORCHCAPS_AVX512)
  if (has(saved, 0xe6) && has(ebx, bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL))
    return InstructionSet::avx512;
#endif
  return has(saved, 0x06) && has(ebx, bit_AVX2) ? InstructionSet::avx2 : InstructionSet::portable;
}
#else
InstructionSet best_instruction_set() { return InstructionSet::portable; }
#endif

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
