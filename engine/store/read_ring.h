#pragma once

#include <memory>

#include "engine/store/read_request.h"
#include "engine/store/shard_reader.h"

namespace engine::store {

// The same through io_uring: the system reads, no thread of ours waits. It carries out what goes
// well; every other read is marked `again` and is the caller's to repeat with read_within(), which
// knows about retries and says what is wrong.
class ReadRing {
 public:
  // Nothing where the program was built without io_uring or the system refuses it.
  static std::unique_ptr<ReadRing> make(const ShardReader& reader);
  ~ReadRing();

  void submit(ReadRequest& request);
  void wait(ReadRequest& request);

 private:
  struct State;
  explicit ReadRing(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace engine::store
