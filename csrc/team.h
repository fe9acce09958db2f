// Threads for the length of one call: nothing outlives it, so a fork, a data-loader worker or a second process can
// neither inherit nor wait for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace torchcaps {

class Team {
 public:
  explicit Team(int size) : size_(size) {}

  // Runs body(thread) on all threads; where the system gives fewer, the ones there are do all the work.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    threads.reserve(size_ > 1 ? size_ - 1 : 0);
    std::unique_lock<std::mutex> hold(mutex_);
    try {
      for (int k = 1; k < size_; ++k)
        threads.emplace_back([this, body, k] {
          { std::lock_guard<std::mutex> wait_for_size(mutex_); }
          body(k);
        });
    } catch (const std::system_error&) {
      size_ = int(threads.size()) + 1;
    }
    hold.unlock();
    body(0);
    for (auto& thread : threads) thread.join();
  }

  // Called by all threads of a running team: work(item) once for every item, by whoever comes first, then all meet.
  template <class Work>
  void each(int64_t items, Work work) {
    for (int64_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < items;) work(item);
    meet();
  }

 private:
  void meet() {
    const unsigned round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      std::lock_guard<std::mutex> lock(mutex_);
      round_.store(round + 1, std::memory_order_release);
      all_here_.notify_all();
      return;
    }
    // The others are mostly a few microseconds away: look for a while before going to sleep.
    for (int k = 0; k < 2000; ++k)
      if (round_.load(std::memory_order_acquire) != round) return;
    std::unique_lock<std::mutex> lock(mutex_);
    all_here_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != round; });
  }

  int size_;
  std::atomic<int64_t> next_{0};
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> round_{0};
  std::mutex mutex_;
  std::condition_variable all_here_;
};

}  // namespace torchcaps
