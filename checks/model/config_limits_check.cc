// What the kernels can hold is asked of the configuration, so that nothing is left to an assertion.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/model/shapes.h"

namespace {

using engine::model::Config;
using testing::AllOf;
using testing::HasSubstr;

void parse(const Config& config) {
  engine::model::parse_config(engine::model::config_json(config), "config.json");
}

TEST(ConfigLimits, WidthOfAKdaHead) {
  Config config = engine::model::checkpoint_shape("tiny").config;
  config.kda_width = 256;
  EXPECT_NO_THROW(parse(config));
  config.kda_width = 257;
  EXPECT_THAT([&] { parse(config); },
              testing::ThrowsMessage<engine::base::Error>(
                  AllOf(HasSubstr("head_dim"), HasSubstr("257"), HasSubstr("256"))));
}

TEST(ConfigLimits, EntriesOfTheBank) {
  Config config = engine::model::checkpoint_shape("tiny").config;
  config.block = 1;
  config.layers = 63;
  config.is_mla.assign(63, false);
  config.is_mla[62] = true;
  EXPECT_NO_THROW(parse(config));
  config.layers = 64;
  config.is_mla.push_back(true);
  EXPECT_THAT([&] { parse(config); },
              testing::ThrowsMessage<engine::base::Error>(
                  AllOf(HasSubstr("attn_res_block_size"), HasSubstr("64"), HasSubstr("63"))));
}

}  // namespace
