#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/store/read_request.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

// Threads that take requests in their order and read them, asleep while there is none.
class ReadThreads {
 public:
  ReadThreads(const ShardReader& reader, int threads);
  ~ReadThreads();

  void submit(ReadRequest& request);
  void wait(ReadRequest& request);

 private:
  void work();

  const ShardReader& reader_;
  std::mutex mutex_;  // guards what stands below, and `done` of every request
  std::condition_variable there_is_work_, one_is_done_;
  std::deque<ReadRequest*> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace engine::store
