// What every function that Python calls needs: to be seen from outside, and to let no exception out.
#pragma once

#include <new>

#define EXPORT __attribute__((visibility("default")))

namespace torchcaps {

// No exception may cross into the caller's language: 0 is success, 1 out of memory.
template <class Call>
int guarded(Call call) {
  try {
    call();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // namespace torchcaps
