// Tests how a driver asks for the lines of its job and passes each of them on once.
#include "troupe/runtime/client/log_printer.hpp"

#include "tests/eventually.hpp"

#include <gtest/gtest.h>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

/// An agent that answers with what the test gives it.
struct Agent {
  const NodeId node = NodeId::random();
  const JobId job = JobId::random();
  std::mutex mutex;
  std::deque<wire::Inquire> questions;
  std::vector<std::string> taken;
  std::unique_ptr<LogPrinter> printer;

  explicit Agent(LogPrinter::Mode mode = LogPrinter::Mode::prefix) {
    {
      const std::lock_guard lock(mutex);  // heard() may be called before this has returned
      printer =
          std::make_unique<LogPrinter>([this](const wire::NodeMessage& m) { heard(m); }, job, mode);
    }
    printer->on_log([this](const LogLine& line) {
      const std::lock_guard lock(mutex);
      taken.push_back(line.node + " " + line.name + " " + line.text);
    });
  }
  void heard(const wire::NodeMessage& message) {
    std::unique_lock lock(mutex);
    if (const auto* list = std::get_if<wire::ListNodes>(&message)) {
      wire::NodeRow row;
      row.id = node;
      row.name = "node-7";
      lock.unlock();
      return printer->on_nodes({list->request, {row}, false});
    }
    questions.push_back(std::get<wire::Inquire>(message));
  }
  /// Returns the next question.
  wire::Inquire question() {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      return !questions.empty();
    }));
    const std::lock_guard lock(mutex);
    if (questions.empty()) return {};
    const wire::Inquire first = questions.front();
    questions.pop_front();
    return first;
  }
  void answer(const wire::Inquire& question, const wire::LogBatch& batch) {
    const Blob bytes = wire::encode(batch);
    const std::size_t half = bytes.size() / 2;  // answers come in pieces
    printer->on_answer({question.request, 0, bytes.size(), nullptr}, BlobView(bytes).first(half));
    printer->on_answer({question.request, half, bytes.size(), nullptr},
                       BlobView(bytes).subspan(half));
  }
  bool has(const std::vector<std::string>& lines) {
    return eventually([&] {
      const std::lock_guard lock(mutex);
      return taken == lines;
    });
  }
};

wire::LogBatch batch_of(std::uint64_t begin, const std::string& text, bool complete = false) {
  wire::LogBatch batch;
  batch.begin = begin;
  batch.complete = complete;
  wire::LogRecord record;
  record.pid = 5;
  record.name = "mix";
  record.text = text;
  if (!text.empty()) wire::write_record(record, batch.text);
  return batch;
}

TEST(LogPrinter, AsksForWhatFollowsAndPassesEachLineOnce) {
  Agent agent;
  const wire::Inquire first = agent.question();
  EXPECT_EQ(first.about, wire::Inquire::About::logs);
  EXPECT_EQ(first.node, agent.node);
  EXPECT_EQ(first.logs.job, agent.job);
  EXPECT_EQ(first.logs.after, 0U);
  EXPECT_FALSE(first.logs.until_complete);
  agent.answer(first, batch_of(0, "one"));
  const wire::Inquire second = agent.question();
  EXPECT_EQ(second.logs.after, batch_of(0, "one").next());
  agent.answer(first, batch_of(0, "one"));  // late: it was answered before
  agent.answer(second, batch_of(second.logs.after, "two"));
  EXPECT_TRUE(agent.has({"node-7 mix one", "node-7 mix two"}));
}

TEST(LogPrinter, TellsOfAGap) {
  Agent agent;
  agent.answer(agent.question(), batch_of(1000, "late"));
  EXPECT_TRUE(
      agent.has({"node-7 troupe 1000 bytes of this job's lines are gone: the node keeps the "
                 "newest only",
                 "node-7 mix late"}));
}

TEST(LogPrinter, BeginsAgainWithANodeThatHadForgottenTheJob) {
  Agent agent;
  agent.answer(agent.question(), batch_of(0, "one"));
  const wire::Inquire second = agent.question();
  EXPECT_GT(second.logs.after, 0U);
  agent.answer(second, batch_of(0, ""));
  const wire::Inquire third = agent.question();
  EXPECT_EQ(third.logs.after, 0U);
  agent.answer(third, batch_of(0, "two"));
  const wire::Inquire fourth = agent.question();
  EXPECT_EQ(fourth.logs.after, batch_of(0, "two").next());
  agent.answer(fourth, batch_of(fourth.logs.after, "three"));
  const std::string told =
      "node-7 troupe the node had forgotten this job's lines: some may be missing";
  EXPECT_TRUE(agent.has({"node-7 mix one", told, "node-7 mix two", "node-7 mix three"}));
  const wire::Inquire fifth = agent.question();
  agent.answer(fifth, batch_of(0, "four"));  // it was not asked in between
  EXPECT_TRUE(agent.has(
      {"node-7 mix one", told, "node-7 mix two", "node-7 mix three", told, "node-7 mix four"}));
}

TEST(LogPrinter, AsksAgainAfterARefusalAndAfterBytesThatAreNoBatch) {
  Agent agent;
  const Error error(Code::unavailable, "the node is gone");
  agent.printer->on_answer({agent.question().request, 0, 0, error.shared_info()}, {});
  const Blob noise(20, std::byte{0xff});
  agent.printer->on_answer({agent.question().request, 0, noise.size(), nullptr}, noise);
  agent.printer->on_answer({agent.question().request, 7, 100, nullptr}, noise);
  agent.answer(agent.question(), batch_of(0, "one"));
  EXPECT_TRUE(agent.has({"node-7 mix one"}));
}

TEST(LogPrinter, FinishesWhenEachNodeHasNamedItsEnd) {
  Agent agent;
  const wire::Inquire open = agent.question();
  std::thread program([&] { agent.printer->finish(false); });
  const wire::Inquire last = agent.question();
  EXPECT_TRUE(last.logs.until_complete);
  agent.answer(open, batch_of(0, "one"));  // of a question that counts no more
  agent.answer(last, batch_of(0, "one"));
  const wire::Inquire rest = agent.question();
  EXPECT_NE(rest.logs.after, 0U);
  agent.answer(rest, batch_of(rest.logs.after, "", true));
  program.join();
  EXPECT_TRUE(agent.has({"node-7 mix one"}));
}

TEST(LogPrinter, FinishesInTimeWhenNobodyAnswers) {
  Agent agent;
  const Time begin = steady_now();
  agent.printer->finish(true);
  EXPECT_LT(steady_now() - begin, LogPrinter::kLastLines / 2) << "its agent is gone";
  agent.printer->finish(false);
  EXPECT_GE(steady_now() - begin, LogPrinter::kLastLines);
}

TEST(LogPrinter, FinishesWithTheLinesThatHaveComeWhenTheAgentIsLost) {
  Agent agent;
  (void)agent.question();
  const Time begin = steady_now();
  std::thread program([&] { agent.printer->finish(false); });
  agent.answer(agent.question(), batch_of(0, "one"));
  agent.printer->on_loss();
  program.join();
  EXPECT_LT(steady_now() - begin, LogPrinter::kLastLines / 2);
  const std::lock_guard lock(agent.mutex);
  EXPECT_EQ(agent.taken, std::vector<std::string>{"node-7 mix one"});
}

TEST(LogPrinter, AsksForNothingThatNobodyWants) {
  Agent agent(LogPrinter::Mode::off);
  (void)agent.question();
  agent.printer->on_log({});
  agent.printer->finish(false);
  EXPECT_TRUE(agent.taken.empty());
}

TEST(LogPrinter, FiltersTakeLinesBeforeTheFunctionOfTheProgram) {
  Agent agent;
  std::vector<std::string> filtered;
  const auto filter_for = [&](const std::string& text) {
    return [&, text](const LogLine& line) {
      const std::lock_guard lock(agent.mutex);
      if (line.text == text) filtered.push_back(line.text);
      return line.text == text;
    };
  };
  const int one = 0, two = 0;
  bool listens = false;
  agent.printer->on_log(LogFilter{&one, filter_for("one"), &listens});
  EXPECT_TRUE(listens);
  agent.printer->on_log(LogFilter{&two, filter_for("two")});
  std::uint64_t after = 0;
  const auto say = [&](const std::string& text) {
    const wire::LogBatch batch = batch_of(after, text);
    after = batch.next();
    agent.answer(agent.question(), batch);
  };
  for (const char* text : {"one", "two", "three"}) say(text);
  EXPECT_TRUE(agent.has({"node-7 mix three"}));
  agent.printer->on_log(LogFilter{&one, {}});
  for (const char* text : {"one", "two"}) say(text);
  EXPECT_TRUE(agent.has({"node-7 mix three", "node-7 mix one"}));
  (void)agent.question();  // asked when the lines before have been passed on
  agent.printer->on_log(LogFilter{&two, {}});
  EXPECT_EQ(filtered, (std::vector<std::string>{"one", "two", "two"}));
}

TEST(LogPrinter, PassesOnWhatAFilterLeavesOfALine) {
  Agent agent;
  const int owner = 0;
  agent.printer->on_log(LogFilter{&owner, [](LogLine& line) {
                                    if (line.text == "mark") return true;
                                    line.text = line.text.substr(0, line.text.find("mark"));
                                    return false;
                                  }});
  std::uint64_t after = 0;
  for (const char* text : {"mark", "halfmark", "whole"}) {
    const wire::LogBatch batch = batch_of(after, text);
    after = batch.next();
    agent.answer(agent.question(), batch);
  }
  EXPECT_TRUE(agent.has({"node-7 mix half", "node-7 mix whole"}));
}

TEST(LogPrinter, ReadsItsModeAndRefusesAnotherWord) {
  const auto mode = [](const char* text) {
    return LogPrinter::mode_of(Environment([text](const char*) { return text; }));
  };
  EXPECT_EQ(mode(nullptr), LogPrinter::Mode::prefix);
  EXPECT_EQ(mode("plain"), LogPrinter::Mode::plain);
  EXPECT_EQ(mode("off"), LogPrinter::Mode::off);
  EXPECT_THROW((void)mode("loud"), InvalidArgument);
}

}  // namespace
}  // namespace troupe::client
