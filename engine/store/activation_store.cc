#include "engine/store/activation_store.h"

#include "engine/base/error.h"

namespace engine::store {

void ActivationStore::write(const std::string& kind, std::int64_t layer,
                            std::span<const std::byte> bytes) {
  const auto [entry, is_new] = records_.try_emplace({kind, layer}, Record{end_, bytes.size()});
  if (is_new) {
    end_ += bytes.size();
  } else if (entry->second.bytes != bytes.size()) {
    throw base::Error("activation record {}.{} holds {} bytes, {} were to replace it", kind, layer,
                      entry->second.bytes, bytes.size());
  }
  file_.write(entry->second.offset, bytes);
}

void ActivationStore::read(const std::string& kind, std::int64_t layer,
                           std::span<std::byte> out) const {
  const auto entry = records_.find({kind, layer});
  if (entry == records_.end()) {
    throw base::Error("there is no activation record {}.{}", kind, layer);
  }
  if (entry->second.bytes != out.size()) {
    throw base::Error("activation record {}.{} holds {} bytes, {} are wanted", kind, layer,
                      entry->second.bytes, out.size());
  }
  file_.read(entry->second.offset, out);
}

}  // namespace engine::store
