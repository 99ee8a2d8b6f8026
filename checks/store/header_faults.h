#pragma once

#include <string>
#include <vector>

namespace checks {

// Two tensors, 32 bytes of data.
inline const std::string kHeader = R"({"__metadata__":{"format":"pt"},)"
                                   R"("first":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                   R"("second":{"dtype":"U8","shape":[8],"data_offsets":[24,32]}})";

// One wrong thing in a file whose control, without it, is accepted.
struct HeaderFault {
  const char* name;
  const char* from;
  const char* to;
  std::vector<const char*> says;  // besides the file's name
  bool has_tensor = true;         // then the message names "second"
};

inline const std::vector<HeaderFault> kHeaderFaults = {
    {"NegativeExtent", "\"shape\":[8]", "\"shape\":[-8]", {"shape[0] is -8"}},
    {"FractionalExtent", "\"shape\":[8]", "\"shape\":[8.0]", {"shape[0] is 8.0"}},
    {"ExponentExtent", "\"shape\":[8]", "\"shape\":[8e0]", {"shape[0] is 8e0"}},
    {"TextExtent", "\"shape\":[8]", "\"shape\":[\"8\"]", {"shape[0] is \"8\""}},
    {"BooleanExtent", "\"shape\":[8]", "\"shape\":[true]", {"shape[0] is true"}},
    {"NestedShape", "\"shape\":[8]", "\"shape\":[[8]]", {"shape[0] is an array"}},
    {"ShapeIsNumber", "\"shape\":[8]", "\"shape\":8", {"shape is 8, not an array"}},
    {"ShapeIsNull", "\"shape\":[8]", "\"shape\":null", {"shape is null"}},
    {"WrongExtent", "\"shape\":[8]", "\"shape\":[9]", {"span 8 bytes", "takes 9"}},
    {"EmptyForEight", "\"shape\":[8]", "\"shape\":[8,0]", {"span 8 bytes", "takes 0"}},
    {"WrongDtype", "\"U8\"", "\"F16\"", {"span 8 bytes", "of F16 takes 16"}},
    {"UnknownDtype", "\"U8\"", "\"U9\"", {"dtype \"U9\""}},
    {"LowerCaseDtype", "\"U8\"", "\"u8\"", {"dtype \"u8\""}},
    {"DtypeIsNumber", "\"U8\"", "8", {"dtype is 8, not a string"}},
    {"OffsetPastTheEnd", "[24,32]", "[24,33]", {"end at 33", "32 bytes of data"}},
    {"OffsetsBackwards", "[24,32]", "[32,24]", {"[32, 24]", "backwards"}},
    {"NegativeOffset", "[24,32]", "[-24,32]", {"data_offsets[0] is -24"}},
    {"FractionalOffset", "[24,32]", "[24,32.0]", {"data_offsets[1] is 32.0"}},
    {"ThreeOffsets", "[24,32]", "[24,32,40]", {"data_offsets has more than 2"}},
    {"OneOffset", "[24,32]", "[24]", {"data_offsets has 1 numbers, not 2"}},
    {"Overlap", "[24,32]", "[23,31]", {"overlap", "tensor first"}},
    {"MissingField", "\"dtype\":\"U8\",", "", {"has no dtype"}},
    {"UnknownField",
     "\"dtype\":\"U8\",",
     "\"dtype\":\"U8\",\"stride\":1,",
     {"unknown field \"stride\""}},
    {"FieldTwice",
     "\"dtype\":\"U8\",",
     "\"dtype\":\"U8\",\"dtype\":\"U8\",",
     {"\"dtype\"", "twice"}},
    {"EntryIsArray",
     "{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[24,32]}",
     "[]",
     {"is an array"}},
    {"SecondNameTwice", "\"first\"", "\"second\"", {"the name stands in this header twice"}},
    {"MetadataNotText", "\"pt\"", "1", {"__metadata__", "\"format\" is 1"}, false},
    {"MetadataIsArray", "{\"format\":\"pt\"}", "[]", {"__metadata__", "is an array"}, false},
    {"NotJson", "\"shape\":[8]", "\"shape\":(8)", {"not valid JSON"}, false},
    {"Comment", "\"shape\":[8]", "/**/\"shape\":[8]", {"not valid JSON"}, false},
    {"NotUtf8", "\"format\"", "\"form\xFFt\"", {"not valid JSON", "UTF-8"}, false},
    {"LoneSurrogate", "\"format\"", "\"form\\ud800t\"", {"not valid JSON"}, false},
    {"ControlCharacter", "\"format\"", "\"form\nt\"", {"not valid JSON"}, false},
};

}  // namespace checks
