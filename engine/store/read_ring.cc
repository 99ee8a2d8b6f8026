#include "engine/store/read_ring.h"

#ifdef LAZYLORA_IO_URING

#include <liburing.h>

#include <cerrno>

#include "engine/base/error.h"

namespace engine::store {

struct ReadRing::State {
  static constexpr unsigned kEntries = 64;
  static constexpr std::size_t kWorthAWorker = std::size_t{1} << 18;
  const ShardReader& reader;
  io_uring ring{};
  unsigned in_flight = 0;

  explicit State(const ShardReader& of) : reader(of) {}

  void reap_one() {
    io_uring_cqe* answer = nullptr;
    const int error = io_uring_wait_cqe(&ring, &answer);
    if (error == -EINTR || error == -EAGAIN) return;
    if (error < 0) {
      throw base::Error("{}: io_uring gives no answers: {}", reader.folder().string(),
                        std::generic_category().message(-error));
    }
    auto& request = *static_cast<ReadRequest*>(io_uring_cqe_get_data(answer));
    request.again = answer->res < 0 || static_cast<std::size_t>(answer->res) < request.raw.needed;
    request.done = true;
    request.raw.keeps_open.reset();
    io_uring_cqe_seen(&ring, answer);
    --in_flight;
  }
};

ReadRing::ReadRing(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<ReadRing> ReadRing::make(const ShardReader& reader) {
  auto state = std::make_unique<State>(reader);
  if (io_uring_queue_init(State::kEntries, &state->ring, 0) != 0) return nullptr;
  return std::unique_ptr<ReadRing>(new ReadRing(std::move(state)));
}

ReadRing::~ReadRing() {
  try {
    while (state_->in_flight > 0) state_->reap_one();
  } catch (const base::Error&) {
    // The ring is broken; closing it ends what it still had to do.
  }
  io_uring_queue_exit(&state_->ring);
}

void ReadRing::submit(ReadRequest& request) {
  const File& file = state_->reader.file(request.shard);
  request.raw = file.raw(request.offset, request.bytes);
  // No single call of the system transfers more.
  if (request.raw.length > state_->reader.settings().chunk_bytes) {
    request.done = request.again = true;
    return;
  }
  while (state_->in_flight == State::kEntries) state_->reap_one();
  io_uring_sqe* entry = io_uring_get_sqe(&state_->ring);
  io_uring_prep_read(entry, request.raw.descriptor, request.room.data() + request.raw.skip,
                     static_cast<unsigned>(request.raw.length), request.raw.offset);
  // What lies in the page cache would be copied here and now, while we want to compute. Where that is
  // little, it costs less than to wake a worker; what does not lie there is not waited for either way.
  if (!request.raw.direct && request.raw.length >= State::kWorthAWorker) {
    io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
  }
  io_uring_sqe_set_data(entry, &request);
  int error = io_uring_submit(&state_->ring);
  while (error == -EINTR || ((error == -EAGAIN || error == -EBUSY) && state_->in_flight > 0)) {
    if (error != -EINTR) state_->reap_one();
    error = io_uring_submit(&state_->ring);
  }
  if (error < 0) {
    throw base::Error("{}: io_uring takes no reads: {}", file.path().string(),
                      std::generic_category().message(-error));
  }
  ++state_->in_flight;
}

void ReadRing::wait(ReadRequest& request) {
  while (!request.done) state_->reap_one();
}

}  // namespace engine::store

#else

namespace engine::store {

struct ReadRing::State {};
ReadRing::ReadRing(std::unique_ptr<State> state) : state_(std::move(state)) {}
ReadRing::~ReadRing() = default;
std::unique_ptr<ReadRing> ReadRing::make(const ShardReader&) { return nullptr; }
void ReadRing::submit(ReadRequest&) {}
void ReadRing::wait(ReadRequest&) {}

}  // namespace engine::store

#endif
