#include "troupe/runtime/options.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::detail {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw InvalidArgument(Code::invalid_argument, message, Outcome::not_executed);
}
double checked(const char* what, double amount) {
  if (!std::isfinite(amount) || amount < 0)
    refuse("options: " + std::string(what) + " must be a number that is not negative");
  return amount;
}
int checked_count(const char* what, int count) {
  if (count < -1)
    refuse("options: " + std::string(what) + " must be -1 (without limit), 0 or more");
  return count;
}

template <class O>
Request common(const O& o) {
  Request request;
  request.name = o.name;
  if (const std::optional<double> cpus = o.cpus) request.cpus = checked("cpus", *cpus);
  request.gpus = checked("gpus", o.gpus);
  request.memory = o.memory;
  for (const Resource& resource : o.resources)
    request.resources.emplace_back(resource.name, checked("a resource", resource.amount));
  request.placement = o.placement.kind();
  request.node = o.placement.node();
  request.soft = o.placement.soft();
  for (const Label& label : o.labels) request.labels.emplace_back(label.key, label.value);
  return request;
}

}  // namespace

void throw_too_many(const char* what, std::size_t limit) {
  refuse(std::string(what) + ": " + std::to_string(limit));
}

Replication replication_of(int replicas, Duration timeout) {
  constexpr int kMost = 1024;
  if (replicas < 1 || replicas > kMost)
    refuse("PutOptions: replicas must be from 1 to " + std::to_string(kMost));
  return {replicas, std::max(timeout, Duration(0))};
}

Request request_of(const Options& options) {
  return common(options);
}

Request request_of(const TaskOptions& options) {
  Request request = common(options);
  request.max_retries = checked_count("max_retries", options.max_retries);
  for (const char* name : options.retry_on.names()) request.retry_on.emplace_back(name);
  request.second_attempt = options.second_attempt;
  if (options.second_attempt && options.max_retries == 0)
    refuse("options: second_attempt runs the function twice, and max_retries 0 forbids that");
  request.isolated = options.isolated;
  return request;
}

Request request_of(const ActorOptions& options) {
  Request request = common(options);
  request.detached = options.detached;
  request.get_if_exists = options.get_if_exists;
  request.max_restarts = checked_count("max_restarts", options.max_restarts);
  if (options.restart_window < Duration::zero())
    refuse("options: restart_window must not be negative; 0 counts restarts over the whole life");
  request.restart_window = options.restart_window;
  if (options.get_if_exists && options.name.empty()) refuse("options: get_if_exists needs a name");
  return request;
}

}  // namespace troupe::detail
