#pragma once

// The scalar functions that anything written may depend on. libm's differ between versions and
// processors; these are polynomials with explicit fma, the same bits everywhere.

namespace engine::base {

// Accuracy  1 ULP (0.83 is the most that checks/ops/math_check.cc met against 50 digits, here and
//           below), of subnormal results too; NaN, infinities and overflow as IEEE-754 says
double exp(double x);

// Natural logarithm. log(0) = -infinity, NaN below 0.
// Accuracy  1 ULP, subnormal arguments included
double log(double x);

// Accuracy  1 ULP, near the zeros too, for |x| <= kCosineRange; NaN beyond, where a schedule or a
//           normal draw has no business
inline constexpr double kCosineRange = 64.0;
double cos(double x);

// One lane of engine/base/lane_math.h, the same bits.
// Accuracy  exp 0.93 ULP, sigmoid 1.97, tanh 2.11; all floats
float exp(float x);
float sigmoid(float x);
float tanh(float x);

}  // namespace engine::base
