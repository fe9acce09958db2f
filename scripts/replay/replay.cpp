// Replays recorded kernel calls and compares every tensor: replay LIBRARY CALLS. Each call is made with one thread, and
// by several callers at once with several threads each, which must give the same bytes. record_calls.py writes CALLS
// and describes the format. It needs no Python, so it runs under an emulator of another processor.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

using Entry = int (*)(void* const*, int64_t, const int64_t*, int64_t, int64_t, char*, int64_t);
using Bytes = std::vector<char>;

constexpr int kCallers = 3;
constexpr int64_t kThreads = 4;

struct Call {
  std::string name;
  std::vector<int64_t> sizes;
  // Of each tensor, the one whose memory it has: itself, an earlier one, or -1 for a null pointer.
  std::vector<int64_t> memory;
  std::vector<Bytes> before, after;
};

struct Worst {
  int64_t calls = 0;
  double error = 0;
};

int64_t read_number(std::istream& file) {
  int64_t value = 0;
  file.read(reinterpret_cast<char*>(&value), sizeof(value));
  return value;
}

Bytes read_bytes(std::istream& file, int64_t count) {
  Bytes bytes(count);
  file.read(bytes.data(), count);
  return bytes;
}

bool read_call(std::istream& file, Call& call) {
  call = Call();
  const int64_t length = read_number(file);
  if (!file) return false;
  const Bytes name = read_bytes(file, length);
  call.name.assign(name.begin(), name.end());
  call.sizes.resize(read_number(file));
  for (int64_t& size : call.sizes) size = read_number(file);
  const int64_t tensors = read_number(file);
  for (int64_t k = 0; k < tensors; ++k) {
    const int64_t bytes = read_number(file);
    call.memory.push_back(bytes >= 0 ? k : -2 - bytes);
    if (bytes == -1) call.memory.back() = -1;
    call.before.push_back(read_bytes(file, std::max<int64_t>(bytes, 0)));
    call.after.push_back(read_bytes(file, std::max<int64_t>(bytes, 0)));
  }
  return bool(file);
}

template <class T>
std::vector<T> values(const Bytes& bytes) {
  std::vector<T> result(bytes.size() / sizeof(T));
  std::memcpy(result.data(), bytes.data(), result.size() * sizeof(T));
  return result;
}

template <class T>
double largest(const Bytes& bytes) {
  double most = 0;
  for (const T value : values<T>(bytes))
    if (std::isfinite(value)) most = std::max(most, std::abs(double(value)));
  return most;
}

// The largest difference of any tensor that the call changed, over the largest value of that tensor; infinite where
// only one value is NaN. A gradient that vanishes beside the others carries their rounding errors: the divisor is at
// least a thousandth of the largest value of them all.
template <class T>
double relative_error(const Call& call, const std::vector<Bytes>& actual) {
  double most = 1e-30, error = 0;
  for (size_t k = 0; k < actual.size(); ++k)
    if (call.after[k] != call.before[k]) most = std::max(most, largest<T>(call.after[k]));
  for (size_t k = 0; k < actual.size(); ++k) {
    const std::vector<T> a = values<T>(actual[k]), b = values<T>(call.after[k]);
    const double scale = std::max(largest<T>(call.after[k]), 1e-3 * most);
    for (size_t i = 0; i < b.size(); ++i) {
      if (std::isnan(a[i]) != std::isnan(b[i])) return INFINITY;
      if (!std::isnan(b[i]) && a[i] != b[i]) error = std::max(error, std::abs(double(a[i]) - double(b[i])) / scale);
    }
  }
  return error;
}

std::vector<Bytes> run(Entry entry, const Call& call, int64_t threads) {
  std::vector<Bytes> memory = call.before;
  std::vector<void*> tensors;
  for (const int64_t k : call.memory) tensors.push_back(k < 0 ? nullptr : memory[k].data());
  char message[256] = "";
  const int status =
      entry(tensors.data(), tensors.size(), call.sizes.data(), call.sizes.size(), threads, message, sizeof(message));
  if (status) {
    std::fprintf(stderr, "%s: expected status 0, got %d (%s)\n", call.name.c_str(), status, message);
    std::exit(1);
  }
  return memory;
}

bool all_callers_agree(Entry entry, const Call& call, const std::vector<Bytes>& expected) {
  std::vector<std::vector<Bytes>> results(kCallers);
  std::vector<std::thread> callers;
  for (auto& result : results) callers.emplace_back([&] { result = run(entry, call, kThreads); });
  for (auto& caller : callers) caller.join();
  return std::all_of(results.begin(), results.end(), [&](const auto& result) { return result == expected; });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: replay LIBRARY CALLS\n"), 2;
  void* const library = dlopen(argv[1], RTLD_NOW);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::ifstream file(argv[2], std::ios::binary);
  std::map<std::string, Worst> worst;
  bool good = true;
  for (Call call; read_call(file, call);) {
    const auto entry = reinterpret_cast<Entry>(dlsym(library, call.name.c_str()));
    if (!entry) return std::fprintf(stderr, "%s: expected an entry of the library\n", call.name.c_str()), 1;
    const bool is_float = call.name.compare(call.name.size() - 3, 3, "f32") == 0;
    const std::vector<Bytes> actual = run(entry, call, 1);
    if (!all_callers_agree(entry, call, actual)) {
      std::fprintf(stderr, "%s: expected the bytes of one thread from several callers\n", call.name.c_str());
      good = false;
    }
    Worst& record = worst[call.name];
    ++record.calls;
    record.error =
        std::max(record.error, is_float ? relative_error<float>(call, actual) : relative_error<double>(call, actual));
  }
  int64_t calls = 0;
  for (const auto& [name, record] : worst) {
    const double bound = name.back() == '2' ? 1e-3 : 1e-11;
    std::printf("%-36s %5d calls, largest relative difference %.1e\n", name.c_str(), int(record.calls), record.error);
    good = good && record.error <= bound;
    calls += record.calls;
  }
  std::printf("%d calls, %s\n", int(calls), good && calls ? "all within 1e-3 (float32) and 1e-11 (float64)" : "FAILED");
  return good && calls ? 0 : 1;
}
