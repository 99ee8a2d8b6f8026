#include "engine/store/folder_kind.h"

#include "engine/base/error.h"
#include "engine/store/at_path.h"

namespace engine::store {
namespace {

// Those of FolderKind first, in its order.
constexpr struct {
  const char *file, *name, *takes_it;
} kKinds[] = {{"log.jsonl", "a run", "`lazylora status` and --adapter take it"},
              {"sequences.bin", "a data set", "--data takes it"},
              {"config.json", "a model", "--model takes it"}};

}  // namespace

void require_kind(const std::filesystem::path& folder, FolderKind wanted) {
  const auto& want = kKinds[static_cast<std::size_t>(wanted)];
  if (is_there(folder / want.file)) return;
  for (const auto& kind : kKinds) {
    if (!is_there(folder / kind.file)) continue;
    throw base::Error("{}: is {}, not {}: {}", folder.string(), kind.name, want.name,
                      kind.takes_it);
  }
}

}  // namespace engine::store
