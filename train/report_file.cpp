#include "troupe/train/internal/report_file.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/json.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

namespace troupe::train::internal {
namespace {

/// JSON has no NaN; null stands for any value that is not finite.
double number_in(const Json* field) {
  const std::optional<double> number = field == nullptr ? std::nullopt : field->as_number();
  return number.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string line_of(const Reported& report) {
  Json extra = Json::object();
  for (const auto& [name, value] : report.metrics.extra) extra[name] = value;
  Json json{{"step", report.metrics.step}, {"loss", report.metrics.loss}, {"extra", extra}};
  if (report.value) json["value"] = *report.value;
  return json.dump() + "\n";
}

std::optional<Reported> report_in(std::string_view line) {
  const Result<Json> json = Json::parse(line);
  if (!json || !json->is_object()) return std::nullopt;
  const Json *step = json->find("step"), *extra = json->find("extra"), *value = json->find("value");
  if (step == nullptr || !step->as_whole<long>()) return std::nullopt;
  Reported report;
  report.metrics.step = step->as_whole<long>().value_or(0);
  report.metrics.loss = number_in(json->find("loss"));
  if (extra != nullptr && extra->is_object())
    for (const Json::Field& field : *extra->as_object())
      report.metrics.extra[field.name] = number_in(&field.value);
  if (value != nullptr) report.value = number_in(value);
  return report;
}

std::string contents(const Fd& file) {
  std::string text;
  struct stat about{};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return text;
  text.resize(static_cast<std::size_t>(about.st_size));
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n =
        ::pread(file.get(), text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

}  // namespace

ReportFile::ReportFile(std::string path) : path_(std::move(path)) {
  file_ =
      make_fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!file_)
    throw Unavailable(Code::unavailable,
                      "train: cannot open " + path_ + ": " + std::strerror(errno));
  const std::string text = contents(file_);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;
    std::optional<Reported> report = report_in(std::string_view(text).substr(at, end - at));
    if (!report || (!reports_.empty() && report->metrics.step <= reports_.back().metrics.step))
      break;
    reports_.push_back(*std::move(report));
    ends_.push_back(end + 1);
    at = end + 1;
  }
  cut();
}

void ReportFile::cut_after(long step) {
  while (!reports_.empty() && reports_.back().metrics.step > step) {
    reports_.pop_back();
    ends_.pop_back();
  }
  cut();
}

void ReportFile::append(const Reported& report) {
  if (!reports_.empty() && reports_.back().metrics.step >= report.metrics.step)
    cut_after(report.metrics.step - 1);
  const std::string line = line_of(report);
  const std::uint64_t begin = ends_.empty() ? 0 : ends_.back();
  reports_.push_back(report);
  if (::write(file_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
    ends_.push_back(begin + line.size());
  } else {
    ends_.push_back(begin);
    cut();
  }
}

void ReportFile::cut() {
  const std::uint64_t end = ends_.empty() ? 0 : ends_.back();
  static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(end)) == 0);
}

}  // namespace troupe::train::internal
