// Which instruction set serves, chosen once per process.
#pragma once

namespace torchcaps {

enum class Level { portable, avx2, avx512 };

Level level();

}  // namespace torchcaps
