#include "engine/measure/time_proof.h"

#include <openssl/err.h>
#include <openssl/ts.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/hex.h"

namespace engine::measure {
namespace {

// What OpenSSL allocates, freed by its own function.
template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
template <class T, auto kFree>
using Owned = std::unique_ptr<T, Free<kFree>>;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  throw base::Error("{}: {}{}{}", file.string(), what, reason == nullptr ? "" : ": ",
                    reason == nullptr ? "" : reason);
}

// For TS_VERIFY_CTX, which frees it.
unsigned char* allocated_bytes(const std::string& hex) {
  auto* bytes = static_cast<unsigned char*>(OPENSSL_malloc(hex.size() / 2));
  if (bytes == nullptr) throw std::bad_alloc();
  for (std::size_t i = 0; i < hex.size() / 2; ++i) {
    bytes[i] = static_cast<unsigned char>(base::hex_value(hex[2 * i]) * 16 +
                                          base::hex_value(hex[2 * i + 1]));
  }
  return bytes;
}

ProvenTime time_of(TS_TST_INFO* info, const std::filesystem::path& answer) {
  std::tm utc{};
  const ASN1_GENERALIZEDTIME* stated = TS_TST_INFO_get_time(info);
  if (stated == nullptr || ASN1_TIME_to_tm(stated, &utc) != 1) refuse(answer, "states no time");
  const auto unix_s = static_cast<std::int64_t>(::timegm(&utc));
  return {unix_s, utc_text(unix_s)};
}

}  // namespace

std::string utc_text(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

ProvenTime verify_time_proof(const std::filesystem::path& answer, const std::string& sha256_hex,
                             const std::filesystem::path& authorities) {
  ERR_clear_error();
  const Owned<BIO, BIO_free_all> file(BIO_new_file(answer.c_str(), "rb"));
  if (!file) refuse(answer, fmt::format("cannot be opened: {}", std::strerror(errno)));
  const Owned<TS_RESP, TS_RESP_free> response(d2i_TS_RESP_bio(file.get(), nullptr));
  if (!response || TS_RESP_get_tst_info(response.get()) == nullptr) {
    refuse(answer, "is no answer of a time stamping authority (RFC 3161)");
  }
  const ProvenTime time = time_of(TS_RESP_get_tst_info(response.get()), answer);

  Owned<X509_STORE, X509_STORE_free> store(X509_STORE_new());
  if (!store || X509_STORE_load_file(store.get(), authorities.c_str()) != 1) {
    refuse(authorities, "holds no certificates");
  }
  // A certificate that has run out since was good when it signed.
  X509_VERIFY_PARAM_set_time(X509_STORE_get0_param(store.get()), time.unix_s);
  const Owned<TS_VERIFY_CTX, TS_VERIFY_CTX_free> context(TS_VERIFY_CTX_new());
  if (!context) throw std::bad_alloc();
  TS_VERIFY_CTX_set_flags(context.get(), TS_VFY_VERSION | TS_VFY_SIGNATURE | TS_VFY_IMPRINT);
  TS_VERIFY_CTX_set_store(context.get(), store.release());
  TS_VERIFY_CTX_set_imprint(context.get(), allocated_bytes(sha256_hex),
                            static_cast<long>(sha256_hex.size() / 2));
  if (TS_RESP_verify_response(context.get(), response.get()) != 1) {
    refuse(answer, fmt::format("does not prove a time for SHA-256 {}", sha256_hex));
  }
  return time;
}

}  // namespace engine::measure
