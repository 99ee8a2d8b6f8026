#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/data/packed_set.h"
#include "engine/measure/evaluate.h"

namespace engine::measure {

// Where a begin-of-text id stands before what is predicted.
enum class Bos {
  kNone,   // the first id of a text is context only, and is not scored
  kFirst,  // before the text: its first id is scored, too
  kEach,   // before every chunk, in the place of the id before it
};
inline constexpr std::string_view kBosNames[] = {"none", "first", "each"};

struct ChunkSettings {
  std::int64_t chunk = 256;   // predictions of a chunk, which is as many ids fed
  std::int64_t stride = 256;  // from one chunk's first prediction to the next's: 1 ... chunk
  Bos bos = Bos::kNone;
  std::int32_t bos_id = -1;  // unless kNone
};

// Bytes of an id's text.
using ByteCount = std::function<std::int64_t(std::int32_t)>;

// A text cut into chunks. Chunk c predicts ids[f + c stride] ... ids[f + c stride + chunk - 1], with
// f = 1 without a begin-of-text id and 0 with one, each from the ids before it in the chunk; what an
// earlier chunk has scored already is context here. So every id from f on is scored exactly once,
// and all but the first chunk's with at least chunk - stride ids before them.
//
// The bytes of a chunk are those of its scored ids. The tempting wrong versions, all ids of the text
// or all that are fed, make a text shorter or longer than what its loss is of.
// Errors    Error naming `where` if nothing is predicted
std::vector<EvalUnit> chunk_units(std::span<const std::int32_t> ids, const ChunkSettings& settings,
                                  const ByteCount& bytes, std::string_view where);

// The documents of a packed set, each a unit with its answer's ids scored: packing does not matter.
// Documents with nothing to score are left out.
std::vector<EvalUnit> set_units(const data::PackedSet& set);

// Stretches without ASCII spaces.
std::int64_t count_words(std::string_view text);

}  // namespace engine::measure
