#include "engine/store/unfinished.h"

#include <atomic>
#include <utility>

#include "engine/base/error.h"

namespace engine::store {
namespace {

std::atomic<const Unfinished*> outermost{nullptr};
std::atomic<bool> wished{false};
static_assert(std::atomic<const Unfinished*>::is_always_lock_free &&
                  std::atomic<bool>::is_always_lock_free,
              "a signal's handler may touch them");

}  // namespace

Unfinished::Unfinished(std::filesystem::path name) : name_(std::move(name)) {
  const Unfinished* nothing = nullptr;
  outermost.compare_exchange_strong(nothing, this);
}

void Unfinished::finish() {
  finished_ = true;
  const Unfinished* self = this;
  outermost.compare_exchange_strong(self, nullptr);
}

bool wish_to_stop() noexcept {
  if (outermost == nullptr) return false;
  wished = true;
  return true;
}

void stop_if_wished() {
  const Unfinished* what = outermost;
  if (!wished || what == nullptr) return;
  throw base::Error("{}: stopped by a signal; what was written is removed", what->name_.string());
}

}  // namespace engine::store
