#include "engine/data/build_set.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/data/packed_set.h"
#include "engine/data/selection.h"
#include "engine/data/set_manifest.h"
#include "engine/store/durable.h"

namespace engine::data {

namespace {

using base::Error;

// What the first pass keeps of a record.
struct Kept {
  std::uint64_t offset = 0;
  std::int64_t line = 0;
  std::size_t bytes = 0;
  std::int32_t category = 0;
  std::int64_t ids = 0;
  std::uint64_t key = 0;
  std::string digest;
};

// A row and the digests in two hash tables, with what the allocator adds; charged by the block.
constexpr std::uint64_t kRecordBytes = 400;
constexpr std::int64_t kBlock = 4096;

class Builder {
 public:
  Builder(const BuildSettings& settings, const Tokenizer& tokenizer, const ChatForm& chat,
          base::RamBudget& budget)
      : settings_(settings), tokenizer_(tokenizer), chat_(chat), budget_(budget) {}

  BuildReport build(const std::filesystem::path& out) {
    read_excluded();
    read_records();
    choose();
    const auto sequences = arrange();
    write(out, sequences);
    return std::move(report_);
  }

 private:
  void charge_one() {
    if (charged_++ % kBlock == 0) records_.grow(kBlock * kRecordBytes);
  }

  void read_excluded() {
    for (const std::filesystem::path& folder : settings_.not_in) {
      const PackedSet set(folder, budget_);
      set.for_each_record([&](const std::string& digest) {
        charge_one();
        excluded_.insert(digest);
      });
      source_.not_in.push_back(set.digest());
    }
  }

  void drop(Reason reason) { ++report_.dropped[static_cast<int>(reason)]; }

  Exchange exchange(const Record& record, const std::string& where) const {
    Exchange made = chat_.exchange(record.question(), record.response, where);
    if (std::ssize(made.ids) > settings_.length && settings_.too_long == TooLong::kTruncate) {
      made.ids.resize(static_cast<std::size_t>(settings_.length));
      made.trained.resize(made.ids.size());
    }
    return made;
  }

  void read_records() {
    RecordReader reader(settings_.records, settings_.names);
    std::unordered_set<std::string> seen;
    std::map<std::string, std::int32_t> categories;
    std::int64_t longest = 0, longest_line = 0;
    std::set<std::string> not_seen(settings_.filters.categories.begin(),
                                   settings_.filters.categories.end());
    while (const auto entry = reader.next()) {
      ++report_.read;
      const Record& record = entry->record;
      not_seen.erase(record.category);
      if (const int reason = first_reason(settings_.filters, record); reason < kReasons) {
        drop(static_cast<Reason>(reason));
        continue;
      }
      std::string digest = record.digest();
      if (!seen.insert(digest).second && !settings_.filters.keep_duplicates) {
        drop(Reason::kDuplicate);
        continue;
      }
      charge_one();
      if (excluded_.contains(digest)) {
        drop(Reason::kExcluded);
        continue;
      }
      const std::string where = fmt::format("{}: line {}", settings_.records.string(), entry->line);
      const Exchange whole = chat_.exchange(record.question(), record.response, where);
      const std::int64_t size = std::ssize(whole.ids);
      std::int64_t kept_ids = size;
      if (size > settings_.length) {
        if (size > longest) longest = size, longest_line = entry->line;
        const bool some_trained =
            std::find(whole.trained.begin(), whole.trained.begin() + settings_.length, 1) !=
            whole.trained.begin() + settings_.length;
        if (settings_.too_long != TooLong::kTruncate || !some_trained) {
          drop(Reason::kTooLong);
          continue;
        }
        ++report_.truncated;
        kept_ids = settings_.length;
      }
      const auto [category, is_new] =
          categories.emplace(record.category, static_cast<std::int32_t>(categories.size()));
      if (is_new) category_names_.grow(record.category.size() + kRecordBytes);
      ++report_.categories[record.category].left;
      kept_.push_back({entry->offset, entry->line, entry->bytes, category->second, kept_ids,
                       selection_key(settings_.seed, digest), std::move(digest)});
    }
    if (!not_seen.empty()) {
      throw Error("{}: no record has the category \"{}\" of --categories",
                  settings_.records.string(), *not_seen.begin());
    }
    report_.blank_lines = reader.blank_lines();
    report_.left = std::ssize(kept_);
    source_.bytes = reader.bytes();
    source_.sha256 = reader.sha256();
    const std::int64_t too_long = report_.dropped[static_cast<int>(Reason::kTooLong)];
    if (settings_.too_long == TooLong::kRefuse && too_long > 0) {
      throw Error("{}: {} records have more than {} ids, line {} has {}: drop or truncate them",
                  settings_.records.string(), too_long, settings_.length, longest_line, longest);
    }
    // Strata in the order of their names, whatever comes first in the file.
    std::vector<std::int32_t> place(categories.size());
    std::int32_t next = 0;
    for (const auto& [name, first_seen] : categories) {
      names_.push_back(name);
      place[first_seen] = next++;
    }
    for (Kept& kept : kept_) kept.category = place[kept.category];
  }

  void choose() {
    if (settings_.count) {
      std::vector<Candidate> candidates;
      for (const Kept& kept : kept_) candidates.push_back({kept.category, kept.key});
      try {
        const auto chosen =
            select(candidates, static_cast<std::int32_t>(names_.size()), *settings_.count);
        std::vector<Kept> selected;
        for (const std::int64_t i : chosen) selected.push_back(std::move(kept_[i]));
        kept_ = std::move(selected);
      } catch (const Error& error) {
        throw Error("{}: {} ({})", settings_.records.string(), error.what(), report_.counts());
      }
    }
    if (settings_.shuffle) {
      std::ranges::sort(kept_, [](const Kept& a, const Kept& b) {
        return std::tie(a.key, a.line) < std::tie(b.key, b.line);
      });
    }
    report_.selected = std::ssize(kept_);
    for (const Kept& kept : kept_) {
      ++report_.categories[names_[kept.category]].selected;
      report_.ids += kept.ids;
    }
    if (kept_.empty() || report_.ids < settings_.length) {
      throw Error(
          "{}: 0 samples: {} documents of {} ids together, shorter than one sequence of {} "
          "({})",
          settings_.records.string(), report_.selected, report_.ids, settings_.length,
          report_.counts());
    }
  }

  std::vector<std::vector<std::int64_t>> arrange() const {
    std::vector<std::int64_t> lengths;
    for (const Kept& kept : kept_) lengths.push_back(kept.ids);
    return pack(lengths, settings_.length, settings_.packing);
  }

  // The record again, and that it is the same one.
  Record read_again(const store::File& file, const Kept& kept) const {
    std::string line(kept.bytes, '\0');
    file.read(kept.offset, std::as_writable_bytes(std::span(line.data(), line.size())));
    const std::string where = fmt::format("{}: line {}", settings_.records.string(), kept.line);
    Record record = parse_record(line, settings_.names, where);
    if (record.digest() != kept.digest) throw Error("{}: changed while it was read", where);
    return record;
  }

  void write(const std::filesystem::path& out,
             const std::vector<std::vector<std::int64_t>>& sequences) {
    store::require_unused(out, store::EmptyFolder::kTaken);
    store::TemporaryFolder folder(out);
    const store::File input(settings_.records);
    DigestedFile packed(folder.path() / "sequences.bin");
    DigestedFile records(folder.path() / "records.jsonl");
    for (const auto& documents : sequences) {
      PackedSequence sequence;
      sequence.borders.push_back(0);
      for (const std::int64_t d : documents) {
        const Kept& kept = kept_[d];
        const Exchange made = exchange(read_again(input, kept), settings_.records.string());
        sequence.ids.insert(sequence.ids.end(), made.ids.begin(), made.ids.end());
        sequence.trained.insert(sequence.trained.end(), made.trained.begin(), made.trained.end());
        sequence.borders.push_back(sequence.size());
        const std::int64_t trained =
            std::accumulate(made.trained.begin(), made.trained.end(), std::int64_t{0});
        records.write(record_row(
            {kept.digest, kept.line, report_.sequences, kept.ids, trained, names_[kept.category]}));
      }
      packed.write(packed_bytes(sequence));
      report_.trained += sequence.trained_ids();
      ++report_.sequences;
    }
    source_.sequences = packed.commit();
    source_.records = records.commit();
    const std::string manifest = set_manifest(settings_, report_, source_, tokenizer_);
    store::write_file_durably(folder.path() / "manifest.json", manifest);
    report_.manifest_sha256 = base::sha256_hex(manifest);
    folder.commit();
  }

  const BuildSettings& settings_;
  const Tokenizer& tokenizer_;
  const ChatForm& chat_;
  base::RamBudget& budget_;
  base::Charge records_{budget_, "table of records"};
  base::Charge category_names_{budget_, "categories"};
  std::int64_t charged_ = 0;
  std::unordered_set<std::string> excluded_;
  std::vector<Kept> kept_;
  std::vector<std::string> names_;  // of categories, rising
  SetSource source_;
  BuildReport report_;
};

}  // namespace

std::string BuildReport::counts() const {
  std::string text = fmt::format("{} records read", read);
  for (int reason = 0; reason < kReasons; ++reason) {
    if (dropped[reason] == 0) continue;
    text += fmt::format(", {} out by {}", dropped[reason], name_of(static_cast<Reason>(reason)));
  }
  return text + fmt::format(", {} left", left);
}

BuildReport build_set(const std::filesystem::path& out, const BuildSettings& settings,
                      const Tokenizer& tokenizer, const ChatForm& chat, base::RamBudget& budget) {
  store::require_unused(out, store::EmptyFolder::kTaken);
  return Builder(settings, tokenizer, chat, budget).build(out);
}

}  // namespace engine::data
