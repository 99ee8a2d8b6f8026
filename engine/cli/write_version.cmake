# Writes OUTPUT, a header with version and git commit, and only if it changed: run at every build, so that
# a manifest never names a commit that the program was not built from.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=40 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${OUTPUT}.new CONTENT
"#pragma once

// Written by engine/cli/write_version.cmake at every build.
#define LAZYLORA_VERSION \"${VERSION}\"
#define LAZYLORA_GIT_COMMIT \"${commit}\"
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
