// Fifty decimal digits: settles disagreements and takes the rounding noise out of losses for finite
// differences. A header of its own because Boost.Multiprecision is expensive to compile.
#pragma once

#include <boost/multiprecision/cpp_bin_float.hpp>

#include "oracle/scalar.h"

namespace oracle {

// Without expression templates: `auto` and the ternary operator then mean what they say.
using Real50 = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<50>,
                                             boost::multiprecision::et_off>;

}  // namespace oracle
