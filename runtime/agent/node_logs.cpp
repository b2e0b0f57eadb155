#include "troupe/runtime/agent/node_logs.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wall_clock.hpp"

#include <sys/epoll.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace troupe::agent {
namespace {

constexpr std::size_t kAtOnce = 64 * 1024;   ///< bytes of one pipe in one pass
constexpr int kPipesAtOnce = 16;             ///< in one pass
constexpr std::size_t kMostAtEnd = 1 << 20;  ///< bytes of a dead process's pipe
constexpr std::uint64_t kWriter = 0, kPipes = 1;
/// How long pipes are left alone after a pass that has read some. A line that is written meanwhile
/// wakes nobody, and 64 KiB of lines are written in more time.
constexpr Duration kRest = std::chrono::milliseconds(1);

bool watch(const Fd& set, int operation, int fd, std::uint64_t whose) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = whose;
  return epoll_ctl(set.get(), operation, fd, &event) == 0;
}

/// Makes a name fit the field of a line: without parameters, unnamed namespaces and control
/// characters.
std::string field_of(std::string name) {
  for (std::size_t at = 0; (at = name.find('(', at)) != std::string::npos;) {
    const std::size_t end = name.find(')', at);
    if (end != std::string::npos && name.compare(end + 1, 2, "::") == 0) {
      name.erase(at, end + 3 - at);  // "(anonymous namespace)::"
    } else if (at != 0) {
      name.resize(at);
    } else {
      break;  // "(lambda at f.cpp:7)"
    }
  }
  std::replace_if(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return name;
}

}  // namespace

NodeLogs::NodeLogs(Out& out, Options options)
    : out_(out),
      writer_(std::move(options.files), options.limits, std::move(options.node)),
      events_(make_fd(epoll_create1(EPOLL_CLOEXEC))),
      pipes_(make_fd(epoll_create1(EPOLL_CLOEXEC))) {
  if (!events_ || !pipes_ || !watch(events_, EPOLL_CTL_ADD, writer_.fd(), kWriter) ||
      !watch(events_, EPOLL_CTL_ADD, pipes_.get(), kPipes))
    raise(Error(Code::out_of_memory, "the log of a node has no descriptor left"));
}

// --- processes

os::OutputEnds NodeLogs::add(ProcessIndex worker, JobNumber number, JobId job) {
  auto pipes = os::make_output_pipes();
  if (!pipes || os::is_in_upper_half(pipes->err.get())) return {};
  Source source;
  source.number = number;
  source.job = job.str();
  source.worker = worker;
  if (!add_source(std::move(pipes->out), std::move(source))) return {};
  source = {};
  source.number = number;
  source.job = job.str();
  source.worker = worker;
  source.is_error = true;
  if (!add_source(std::move(pipes->err), std::move(source))) return {};
  return std::move(pipes->ends);
}

bool NodeLogs::add_source(Fd pipe, Source source) {
  if (!watch(pipes_, EPOLL_CTL_ADD, pipe.get(), next_source_)) return false;
  source.pipe = std::move(pipe);
  sources_.emplace(next_source_++, std::move(source));
  return true;
}

os::OutputEnds NodeLogs::add_worker(ProcessIndex worker, JobNumber number, JobId job) {
  os::OutputEnds ends = add(worker, number, job);
  if (!ends) return ends;
  for (const auto& [id, source] : sources_)  // the program may have replaced the zygote's
    if (source.worker == 0 && source.number == number)
      (source.is_error ? ends.instead_of_err : ends.instead_of_out) =
          os::pipe_inode(source.pipe.get());
  return ends;
}

os::OutputEnds NodeLogs::add_zygote(JobNumber number, JobId job) {
  last_of_zygote_.erase(number);
  return add({}, number, job);
}

void NodeLogs::forked(ProcessIndex worker, pid_t pid) {
  for (auto& [id, source] : sources_)
    if (source.worker == worker && source.worker != 0) source.pid = pid;
}

void NodeLogs::zygote_started(JobNumber number, pid_t pid) {
  for (auto& [id, source] : sources_)
    if (source.worker == 0 && source.number == number && !source.ending) source.pid = pid;
}

std::string NodeLogs::name_of(const Source& source) const {
  if (source.worker == 0) return "program";
  const std::string name = field_of(out_.name_of(source.worker));
  return name.empty() ? "worker" : name;
}

std::string NodeLogs::ended(ProcessIndex worker, JobNumber number) {
  looks_again_ = true;  // its pipes may be closed already
  const auto is_own = [&](const Source& one) { return one.worker == worker && one.worker != 0; };
  const bool has_own = std::any_of(sources_.begin(), sources_.end(),
                                   [&](const auto& one) { return is_own(one.second); });
  if (has_own) end_sources(is_own);
  forget_last(is_own);
  const auto node = last_of_worker_.extract(worker);
  const std::string last(node ? node.mapped().text() : "");
  if (has_own) return last;
  for (auto& [id, source] : sources_)  // it wrote to those of its zygote
    if (source.worker == 0 && source.number == number && flow_.valve == Valve::open &&
        writer_.has_room())
      (void)read(id, source, kAtOnce);
  return last;
}

std::string NodeLogs::zygote_ended(JobNumber number) {
  const auto is_its = [&](const Source& one) { return one.worker == 0 && one.number == number; };
  end_sources(is_its);
  forget_last(is_its);
  const auto last = last_of_zygote_.extract(number);
  return last ? std::string(last.mapped().text()) : "";
}

void NodeLogs::job_over(JobNumber number) {
  const auto is_its = [&](const Source& one) { return one.number == number; };
  end_sources(is_its);
  forget_last([&](const Source& one) { return is_its(one) && one.worker == 0; });
  last_of_zygote_.erase(number);
}

void NodeLogs::end() {
  const auto all = [](const Source&) { return true; };
  end_sources(all);
  if (!sources_.empty()) {  // the writer has no room, and nobody waits until it has
    flow_.valve = Valve::dropping;
    end_sources(all);
  }
  for (const auto& [job, count] : std::exchange(dropped_, {}))
    writer_.lost(job, count, "their file took none before the node ended");
}

void NodeLogs::end_sources(const std::function<bool(const Source&)>& which) {
  for (auto at = sources_.begin(); at != sources_.end();) {
    const auto one = at++;
    if (!which(one->second)) continue;
    one->second.ending = true;
    drain(one);
  }
  looks_again_ = true;
}

/// What these sources still hold, once the writer has room, is in no news of a death any more.
void NodeLogs::forget_last(const std::function<bool(const Source&)>& which) {
  for (auto& [id, source] : sources_)
    if (which(source)) source.told = true;
}

// --- lines

/// Reads a pipe of a process that has ended, until it is empty. A process that lives on may have
/// the other end: what it writes later is not read. While the writer has no room, the rest waits.
void NodeLogs::drain(Sources::iterator at) {
  std::size_t bytes = 0;
  while (flow_.valve != Valve::waiting && bytes < kMostAtEnd) {
    if (!writer_.has_room() && flow_.valve == Valve::open) return;
    if (read(at->first, at->second, kAtOnce) != Pipe::more) {
      close(at);
      return;
    }
    bytes += kAtOnce;
  }
  if (bytes >= kMostAtEnd) close(at);
}

NodeLogs::Sources::iterator NodeLogs::close(Sources::iterator at) {
  const Source& source = at->second;
  keep(at->first, source, {}, true);
  (void)watch(pipes_, EPOLL_CTL_DEL, source.pipe.get(), 0);
  return sources_.erase(at);
}

NodeLogs::Pipe NodeLogs::read(std::uint64_t id, Source& source, std::size_t most) {
  std::array<char, kAtOnce> buffer;
  ssize_t n = 0;
  do {
    n = ::read(source.pipe.get(), buffer.data(), std::min(most, buffer.size()));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN ? Pipe::empty : Pipe::closed;
  if (n == 0) return Pipe::closed;
  keep(id, source, {buffer.data(), static_cast<std::size_t>(n)}, false);
  return Pipe::more;
}

/// Passes the lines in the bytes to the writer, or counts them. `ends`: the rest of a line, too.
void NodeLogs::keep(std::uint64_t id, const Source& source, std::string_view bytes, bool ends) {
  LogWriter::Lines lines;
  std::string head;
  wire::LogRecord record;
  const std::string name = name_of(source);
  record.time_unix_ns = unix_nanoseconds();
  record.pid = source.pid;
  record.is_error = source.is_error;
  record.name = name;
  wire::write_record_head(record, head);
  LastLines* const last = source.told          ? nullptr
                          : source.worker == 0 ? &last_of_zygote_[source.number]
                                               : &last_of_worker_[source.worker];
  const auto take = [&](std::string_view line) {
    ++lines.count;
    if (flow_.valve != Valve::dropping) lines.bytes.append(head).append(line).append(1, '\n');
    if (last != nullptr) last->add(line);
  };
  if (ends)
    reader_.end(id, take);
  else
    reader_.feed(id, bytes, take);
  if (lines.count == 0) return;
  if (flow_.valve == Valve::dropping) {
    dropped_[source.job] += lines.count;
    return;
  }
  lines.job = source.job;
  writer_.write(std::move(lines));
}

void NodeLogs::read_pipes(Time now) {
  if (now < flow_.rests_until) return;
  std::array<epoll_event, kPipesAtOnce> events;
  const int ready = epoll_wait(pipes_.get(), events.data(), kPipesAtOnce, 0);
  flow_.rests_until = ready > 0 ? now + kRest : Time{};
  for (int i = 0; i < ready; ++i) {
    if (flow_.valve == Valve::open && !writer_.has_room()) return;
    const auto at = sources_.find(events[static_cast<std::size_t>(i)].data.u64);
    if (at == sources_.end()) continue;
    const Pipe state = read(at->first, at->second, kAtOnce);
    if (state == Pipe::closed || (state == Pipe::empty && at->second.ending)) close(at);
  }
}

/// Decides whether pipes are read. A full writer makes workers wait; after kPatience their lines
/// are counted instead.
void NodeLogs::set_valve(Time now) {
  if (writer_.has_room()) {
    flow_.valve = Valve::open;
    flow_.drops_at = Time::max();
    for (const auto& [job, count] : std::exchange(dropped_, {}))
      writer_.lost(job, count, "their file took none for 5 s");
  } else if (flow_.valve == Valve::open) {
    flow_.valve = Valve::waiting;
    flow_.drops_at = now + kPatience;
  } else if (flow_.valve == Valve::waiting && now >= flow_.drops_at) {
    flow_.valve = Valve::dropping;
    flow_.drops_at = Time::max();
  }
}

/// Lets pipes wake the loop, unless they rest or the writer has no room.
void NodeLogs::watch_pipes() {
  const bool wanted = flow_.valve != Valve::waiting && flow_.rests_until == Time{};
  if (wanted == flow_.watched) return;
  flow_.watched = wanted;
  (void)watch(events_, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, pipes_.get(), kPipes);
}

void NodeLogs::serve(Time now) {
  looks_again_ = false;
  const std::vector<LogWriter::Read> reads = writer_.take();
  set_valve(now);
  if (flow_.valve != Valve::waiting) {
    read_pipes(now);
    for (auto at = sources_.begin(); at != sources_.end();) {
      const auto one = at++;
      if (one->second.ending) drain(one);
    }
    set_valve(now);
  }
  watch_pipes();
  for (const LogWriter::Read& read : reads) {
    const auto at = questions_.find(read.request);
    if (at == questions_.end()) continue;
    const Question question = at->second.question;
    if (read.bytes.empty() && read.offset == question.after) {
      at->second.reading = false;  // what was there is gone
      continue;
    }
    questions_.erase(at);
    wire::LogBatch batch;
    batch.begin = read.offset;
    batch.text = read.bytes;
    batch.complete = is_complete(question.job.str(), question.job, batch.next());
    out_.answer_logs(question.asker, batch);
  }
  std::vector<std::uint64_t> open;
  for (const auto& [number, waiting] : questions_)
    if (!waiting.reading) open.push_back(number);
  for (const std::uint64_t number : open) look(number, now);
}

// --- questions

void NodeLogs::ask(const Question& question, Time now) {
  if (questions_.size() >= kMostQuestions)
    return out_.answer_logs(question.asker,
                            {.begin = question.after, .complete = false, .text = {}});
  Waiting waiting;
  waiting.question = question;
  waiting.question.most =
      std::clamp<std::uint32_t>(question.most, wire::kLeastLogBatch, wire::kMaxLogBatch);
  waiting.until = now + question.wait;
  const std::uint64_t number = next_question_++;
  questions_.emplace(number, waiting);
  look(number, now);
}

bool NodeLogs::is_complete(const std::string& job, JobId id, std::uint64_t offset) const {
  if (out_.may_write(id) || !writer_.is_written(job) || writer_.end(job) > offset) return false;
  return std::none_of(sources_.begin(), sources_.end(),
                      [&](const auto& one) { return one.second.job == job && one.second.ending; });
}

/// Answers the question if that can be done now, or begins to read for it.
void NodeLogs::look(std::uint64_t number, Time now) {
  const auto at = questions_.find(number);
  Waiting& waiting = at->second;
  Question& question = waiting.question;
  const std::string job = question.job.str();
  const std::uint64_t end = writer_.end(job);
  if (end < question.after) question.after = 0;  // the job was forgotten and begins again
  if (end > question.after) {
    waiting.reading = true;
    return writer_.read({number, job, question.after, question.most});
  }
  if (now < waiting.until && !question.until_complete) return;
  wire::LogBatch batch;
  batch.begin = question.after;
  batch.complete = is_complete(job, question.job, question.after);
  if (now < waiting.until && !batch.complete) return;
  const Asker asker = question.asker;
  questions_.erase(at);
  out_.answer_logs(asker, batch);
}

void NodeLogs::forget(ProcessIndex process) {
  std::erase_if(questions_, [&](const auto& one) { return one.second.question.asker.is(process); });
}

void NodeLogs::forget(NodeId node) {
  std::erase_if(questions_, [&](const auto& one) { return one.second.question.asker.is(node); });
}

Time NodeLogs::next_deadline() const {
  if (looks_again_ && !questions_.empty()) return Time{};
  Time until = flow_.drops_at;
  if (flow_.rests_until != Time{} && flow_.valve != Valve::waiting)
    until = std::min(until, flow_.rests_until);
  for (const auto& [number, waiting] : questions_)
    if (!waiting.reading) until = std::min(until, waiting.until);
  return until;
}

}  // namespace troupe::agent
