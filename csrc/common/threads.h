// Threads for the duration of one call. None outlives it, so a forked process or a data-loader worker neither inherits
// them nor waits for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace torchcaps {

class ThreadTeam {
 public:
  explicit ThreadTeam(int size) : size_(size) {}

  int size() const { return size_; }

  // Runs body(thread) on all threads, the caller's included. With fewer threads than requested, those that started do
  // all the work. The first exception of any thread ends the others at their next barrier and is rethrown here.
  template <class Body>
  void run(const Body& body) {
    const auto run_one = [&](int thread) {
      try {
        body(thread);
      } catch (const Cancelled&) {
      } catch (...) {
        fail(std::current_exception());
      }
    };
    std::vector<std::thread> threads;
    threads.reserve(size_ > 1 ? size_ - 1 : 0);
    std::unique_lock<std::mutex> hold(mutex_);
    try {
      for (int k = 1; k < size_; ++k)
        threads.emplace_back([this, &run_one, k] {
          // `size_` is final only when the caller releases the lock.
          {
            std::lock_guard<std::mutex> wait_for_size(mutex_);
          }
          run_one(k);
        });
    } catch (...) {
      // No more threads or no memory for them: `size_` below counts those that did start.
    }
    size_ = int(threads.size()) + 1;
    hold.unlock();
    run_one(0);
    for (auto& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
  }

  // Called by all threads of a running team: work(item) once for every item, in any order, then a barrier.
  template <class Work>
  void parallel_for(int64_t items, Work work) {
    for (int64_t item; (item = next_.fetch_add(1, std::memory_order_relaxed)) < items;) work(item);
    barrier();
  }

 private:
  struct Cancelled {};

  void barrier() {
    const unsigned round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      std::lock_guard<std::mutex> lock(mutex_);
      round_.store(round + 1, std::memory_order_release);
      all_arrived_.notify_all();
      return;
    }
    // The other threads are mostly a few microseconds away: spin before sleeping.
    for (int k = 0; k < 2000; ++k)
      if (round_.load(std::memory_order_acquire) != round) return;
    std::unique_lock<std::mutex> lock(mutex_);
    all_arrived_.wait(lock, [&] { return error_ || round_.load(std::memory_order_acquire) != round; });
    if (round_.load(std::memory_order_acquire) == round) throw Cancelled();
  }

  void fail(std::exception_ptr error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = error;
    all_arrived_.notify_all();
  }

  int size_;
  std::atomic<int64_t> next_{0};
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> round_{0};
  std::mutex mutex_;
  std::condition_variable all_arrived_;
  std::exception_ptr error_;  // guarded by mutex_
};

}  // namespace torchcaps
