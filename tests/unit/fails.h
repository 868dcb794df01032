// EXPECT_THAT(status, Fails(MARLIN_E_SHAPE, HasSubstr("expected")))
#pragma once

#include "base/status.h"
#include "must.h"
#include "test.h"

namespace metal_marlin {

MATCHER_P2(Fails, code, words,
           "has code " + ::testing::PrintToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(words, negation)) {
  *result_listener << "of code " << arg.code() << ": " << arg.message() << "\n";
  return arg.code() == code && ::testing::ExplainMatchResult(words, std::string(arg.message()), result_listener);
}

}  // namespace metal_marlin
