#define ISA avx2
#define VECTOR_BYTES 32
#include "stages.inl"
#include "em.inl"
