#include "tests/chaos/driver.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace chaos {

using namespace std::chrono_literals;

Work& Work::operator+=(const Work& other) {
  tasks += other.tasks;
  calls += other.calls;
  objects += other.objects;
  records += other.records;
  unknown += other.unknown;
  refused += other.refused;
  ended += other.ended;
  gone += other.gone;
  no_space += other.no_space;
  return *this;
}

Work Work::operator-(const Work& other) const {
  return {tasks - other.tasks,     calls - other.calls,     objects - other.objects,
          records - other.records, unknown - other.unknown, refused - other.refused,
          ended - other.ended,     gone - other.gone,       no_space - other.no_space};
}

Driver::Driver(const std::string& program, const std::string& file, const std::string& ledger,
               std::uint64_t seed, const std::string& canary, const std::string& log)
    : child_(
          start({program, "--load", file, ledger, std::to_string(seed), canary}, {}, log, false)) {
  ::fcntl(child_.out, F_SETFL, O_NONBLOCK);
}

Driver::~Driver() {
  close_ends(child_);
}

bool Driver::ready(std::chrono::milliseconds bound) {
  return within(bound,
                [&] {
                  listen();
                  return ready_ || !is_alive(child_.pid);
                }) &&
         ready_;
}

void Driver::say(const std::string& line) {
  const std::string text = line + "\n";
  (void)!::write(child_.in, text.data(), text.size());
}

void Driver::mark(std::uint64_t number, Clock::time_point injected) {
  say("mark " + std::to_string(number) + " " +
      std::to_string(injected.time_since_epoch() / std::chrono::nanoseconds(1)));
}

std::optional<double> Driver::recovered(std::uint64_t number, std::chrono::milliseconds bound) {
  within(bound, [&] {
    listen();
    return recovered_.count(number) != 0 || home || !is_alive(child_.pid);
  });
  const auto at = recovered_.find(number);
  return at != recovered_.end() ? std::optional(at->second) : std::nullopt;
}

bool Driver::finish() {
  say("finish");
  const int code = wait_for(child_.pid, 60s);
  listen();
  return code == 0 && ended_;
}

void Driver::listen() {
  char buffer[4096];
  for (ssize_t n; (n = ::read(child_.out, buffer, sizeof buffer)) > 0;)
    heard_.append(buffer, static_cast<std::size_t>(n));
  for (auto end = heard_.find('\n'); end != std::string::npos; end = heard_.find('\n')) {
    hear(heard_.substr(0, end));
    heard_.erase(0, end + 1);
  }
}

void Driver::hear(const std::string& text) {
  std::istringstream line(text);
  std::string verb;
  line >> verb;
  std::uint64_t number = 0;
  if (verb == "note" && std::getenv("CHAOS_NOTES") != nullptr)
    std::fprintf(stderr, "chaos: %s\n", text.c_str());
  if (verb == "ready") ready_ = true;
  if (verb == "end") ended_ = true;
  if (verb == "actor") {
    line >> number;
    line >> actors[static_cast<int>(number)];
  } else if (verb == "tick") {
    line >> work_.tasks >> work_.calls >> work_.objects >> work_.records >> work_.unknown >>
        work_.refused >> work_.ended >> work_.gone >> work_.no_space;
  } else if (verb == "recovered") {
    line >> number;
    line >> recovered_[number];
  } else if (verb == "hogged") {
    line >> number;
    line >> hogged[number];
  } else if (verb == "home") {
    line >> home.emplace();
  } else if (verb == "bad") {
    Bad one;
    line >> one.what;
    std::getline(line, one.text);
    bad_.push_back(std::move(one));
  }
}

}  // namespace chaos
