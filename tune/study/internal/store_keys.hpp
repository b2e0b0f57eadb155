/// The keys of a study's store. Numbers are big-endian, so that byte order is their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::tune::internal {

inline std::string big_endian(std::uint64_t number, std::size_t width) {
  std::string bytes(width, '\0');
  for (std::size_t i = width; i-- > 0; number >>= 8) bytes[i] = static_cast<char>(number & 0xff);
  return bytes;
}
inline std::uint64_t number_in(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char c : bytes) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

inline constexpr const char* kMetaKey = "meta";
inline constexpr const char* kEvents = "e/";
inline constexpr const char* kTrials = "t/";
inline constexpr const char* kReports = "c/";
inline constexpr const char* kCheckpoints = "k/";
inline constexpr const char* kClients = "p/";
inline constexpr const char* kExporters = "x/";
inline constexpr std::size_t kEventWidth = 8, kTrialWidth = 4, kStepWidth = 8;

inline std::string event_key(std::uint64_t number) {
  return kEvents + big_endian(number, kEventWidth);
}
inline std::string trial_key(std::uint32_t trial) {
  return kTrials + big_endian(trial, kTrialWidth);
}
inline std::string reports_of(std::uint32_t trial) {
  return kReports + big_endian(trial, kTrialWidth) + "/";
}
inline std::string report_key(std::uint32_t trial, std::uint64_t step) {
  return reports_of(trial) + big_endian(step, kStepWidth);
}
/// Returns the first key above all that begin with the prefix, which ends with '/'.
inline std::string end_of(std::string prefix) {
  ++prefix.back();
  return prefix;
}

}  // namespace troupe::tune::internal
