// The instruction set in use, chosen once per process.
#pragma once

namespace torchcaps {

enum class InstructionSet { portable, avx2, avx512 };

InstructionSet instruction_set();

// `Tables` has a static function per instruction set, each of which returns a pointer to its table of kernels.
template <class Tables>
const auto& select_kernels() {
#if defined(TORCHCAPS_AVX512)
  if (instruction_set() == InstructionSet::avx512) return *Tables::avx512();
#endif
#if defined(TORCHCAPS_X86)
  if (instruction_set() == InstructionSet::avx2) return *Tables::avx2();
#endif
  return *Tables::portable();
}

}  // namespace torchcaps
