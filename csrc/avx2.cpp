// All kernels for one instruction set; CMakeLists.txt sets the compiler flags of this file.
#define INSTRUCTION_SET avx2
#define VECTOR_BYTES 32
#include "dense/kernels.inl"
#include "em/kernels.inl"
#include "grid/attention.inl"
#include "grid/gaussian.inl"
#include "grid/kuramoto.inl"
