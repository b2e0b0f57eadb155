/// The owner of a study as tests play it: a store, an experiment whose trials only the test reports
/// for, a server, and a thread that carries out the commands of clients.
///
///     Owner owner(folder);
///     owner.act([](Experiment& e, Time now) { e.reported(0, 1, {.step = 1, .score = 0.5}, now); });
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/tune/study/study_server.hpp"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace troupe::tune::studies {

inline SearchSpace owned_space() {
  return {{{"lr", log_uniform(1e-4, 1)}, {"optimizer", choices({"sgd", "adam"})}}};
}

class Owner {
 public:
  explicit Owner(const std::string& folder)
      : store_(StudyStore::open(folder, store_options()).value()),
        experiment_(owned_space(), {.goal = maximize,
                                    .trials = 20,
                                    .concurrent = 3,
                                    .seed = 5,
                                    .name = "resnet",
                                    .metric = "accuracy"}),
        server_(StudyServer::open(*store_, {.wake = [this] { wake(); }}).value()) {
    experiment_.with_store();
    act([](Experiment& e, Time now) { e.begin(now); });
    thread_ = std::thread([this] { run(); });
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    {
      const std::lock_guard guard(mutex_);
      over_ = true;
    }
    woken_.notify_all();
    thread_.join();
    server_.reset();  // before what wake() uses
  }

  /// Calls the function with the experiment, then writes and answers as a runner does.
  void act(const std::function<void(Experiment&, Time)>& function) {
    const std::lock_guard guard(mutex_);
    function(experiment_, steady_now());
    turn();
  }
  const StudyStore& store() const { return *store_; }

 private:
  static StudyStoreOptions store_options() {
    StudyStoreOptions options;
    options.reserve = Bytes{0};
    options.free_space = [] { return Bytes{1ull << 40}; };
    return options;
  }
  void wake() {
    {
      const std::lock_guard guard(mutex_);
      asked_ = true;
    }
    woken_.notify_all();
  }
  void turn() {
    server_->apply(experiment_, steady_now());
    (void)experiment_.take_commands();
    store_->write(experiment_.take_batch()).value();
    server_->answer_all();
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      woken_.wait(lock, [this] { return asked_ || over_; });
      if (over_) return;
      asked_ = false;
      turn();
    }
  }

  std::unique_ptr<StudyStore> store_;
  Experiment experiment_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool asked_ = false, over_ = false;
  std::unique_ptr<StudyServer> server_;
  std::thread thread_;
};

}  // namespace troupe::tune::studies
