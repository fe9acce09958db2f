#define ISA avx512
#define VECTOR_BYTES 64
#include "stages.inl"
#include "em.inl"
