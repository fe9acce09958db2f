#define ISA portable
#define VECTOR_BYTES 16
#include "stages.inl"
#include "em.inl"
