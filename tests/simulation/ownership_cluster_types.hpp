/// The tables and messages of the processes and agents in the ownership simulation
/// (ownership_cluster.hpp).
#pragma once

#include "troupe/runtime/agent/lineage_cache.hpp"

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace troupe::simulation::cluster {

using Index = ProcessIndex;

struct Seen {  // what the schedules did, to judge their coverage
  std::uint64_t frees = 0, pulls = 0, passed_on = 0, came_home = 0, nested_remote = 0, lost = 0;
  std::uint64_t excused = 0, cut_off = 0, missed = 0, rebuilt = 0, entrusted = 0;
  Seen& operator+=(const Seen& other) {
    frees += other.frees;
    pulls += other.pulls;
    passed_on += other.passed_on;
    came_home += other.came_home;
    nested_remote += other.nested_remote;
    lost += other.lost;
    excused += other.excused;
    cut_off += other.cut_off;
    missed += other.missed;
    rebuilt += other.rebuilt;
    entrusted += other.entrusted;
    return *this;
  }
};

struct Who {
  std::size_t node = 0;
  Index process = 0;
  friend auto operator<=>(const Who&, const Who&) = default;
};
struct Entry {  // an object in the process's own table
  int handles = 0;
  bool promoted = false, ready = false, awaited = false, remote = false;
  bool mine = false;  // pending: this process will fulfil it
  bool large = false;
  std::vector<ObjectId> nested;
  bool forward = false;           // takes the value of its one nested ref
  bool recompute_target = false;  // made to replace a lost object
  bool lost = false;              // ready, but only an error
  bool asked = false;             // led to a lost one: Rebuild was sent
};
struct ToAgent {
  enum class Kind {
    promote,
    fulfil,
    hold,
    await,
    rebuild,
    rebuilt,
    keep,
    made,
    forget
  } kind = Kind::hold;
  ObjectId object;
  wire::Value value;
  Index process = 0;
  std::int32_t delta = 0;
  bool fetch = false;
  ObjectId lost = {};                               // rebuild
  std::shared_ptr<const wire::KeptCall> call = {};  // keep
  std::uint64_t number = 0;                         // made, forget
};
struct FromAgent {
  enum class Kind { value, rebuild, call, made, over } kind = Kind::value;
  ObjectId object;
  wire::Value value;
  ObjectId lost = {};                               // rebuild
  std::shared_ptr<const wire::KeptCall> call = {};  // call
  std::uint64_t number = 0;                         // made
};
/// A call that the process has reported to the agent or taken over from it.
struct Call {
  bool taken = false;
  std::uint64_t made = 0;  // number of the object that it made; 0: unknown here
  std::vector<ObjectId> held;
  std::set<ObjectId> objects;  // objects that it may be asked to compute
};
struct Process {
  bool alive = true, doomed = false, buried = false;
  std::map<ObjectId, Entry> table;
  std::vector<ObjectId> user;  // one element per handle of the program
  std::deque<ToAgent> ring;
  std::deque<FromAgent> agent;
  std::map<Who, std::deque<std::vector<ObjectId>>> inbox;    // by sender
  std::map<Who, std::deque<std::vector<ObjectId>>> proxies;  // to processes of other nodes
  std::vector<ObjectId> sending;                             // counted, not yet published
  Who sending_to;
  std::map<ObjectId, int> awaits, answers;
  std::map<std::uint64_t, Call> calls;  // by number
  std::uint64_t told = 0;               // number of calls reported
};
struct Owned {
  ObjectId object;
  std::size_t owner = 0;
};
struct Peer {  // a message between two agents
  enum class Kind { frame, hold, await, ready, pull, data, refused, rebuild } kind = Kind::frame;
  Who from, to;  // frame
  std::vector<Owned> refs;
  ObjectId object;
  std::size_t holder = 0;
  std::int32_t delta = 0;
  wire::Value value;
  ObjectId lost = {};  // rebuild
};
struct Passed {  // a ref, by a node that does not own it
  ObjectId object;
  std::size_t by = 0, to = 0;
  friend auto operator<=>(const Passed&, const Passed&) = default;
};

}  // namespace troupe::simulation::cluster
