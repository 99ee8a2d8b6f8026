#include "engine/store/read_threads.h"

#include <system_error>

#include "engine/base/error.h"

namespace engine::store {

ReadThreads::ReadThreads(const ShardReader& reader, int threads) : reader_(reader) {
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    // Fewer read the same.
    if (threads_.empty()) {
      throw base::Error("no thread can be made to read with: {}", error.code().message());
    }
  }
}

ReadThreads::~ReadThreads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  there_is_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadThreads::submit(ReadRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&request);
  }
  there_is_work_.notify_one();
}

void ReadThreads::wait(ReadRequest& request) {
  std::unique_lock lock(mutex_);
  one_is_done_.wait(lock, [&] { return request.done; });
}

void ReadThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    there_is_work_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    ReadRequest& request = *waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    try {
      reader_.read_within(request.shard, request.offset, request.bytes, request.room);
    } catch (...) {
      request.failure = std::current_exception();
    }
    lock.lock();
    request.done = true;
    one_is_done_.notify_one();
  }
}

}  // namespace engine::store
