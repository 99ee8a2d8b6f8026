#pragma once

#include <string>

#include "reports/evidence_lines.h"

namespace reports {

// What the figures of an evaluation are drawn from, columns with tabs between them, a head and a line for
// every step or layer; the head alone where the evaluation has nothing of the kind.
std::string loss_rows(const EvidenceLines& evidence);  // step, loss
std::string norm_rows(
    const EvidenceLines& evidence);  // layer, change, gradient (nan: not asked for)
std::string routing_rows(
    const EvidenceLines& evidence);  // layer; Jaccard index, same set: of every task

}  // namespace reports
