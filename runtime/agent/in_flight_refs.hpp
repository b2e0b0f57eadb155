/// Counts of refs and objects in memory that one process of a node gives to another in frames that
/// the agent does not see. A plain state machine of the agent.
///
/// The sender tells the agent of a ref before it publishes the frame. If it dies in between, the
/// receiver owns a count of which it never learns. So the sender names, with each ref, the number
/// of its frame to that receiver and how many earlier frames are not in the ring yet. The agent
/// remembers the refs of frames that may not be in the ring, mostly those of the last frame. After
/// the sender's death each receiver reports how many of its frames have come (`Arrived`), and the
/// agent returns what was in later ones.
///
///     in_flight.counted(from, to, frame, object);    // a Hold for another process
///     in_flight.adopted(from, to, frame, location);  // an Adopt; to == from: it keeps it
///     const auto after = in_flight.died(process, peers);  // each peer gets PeerDied
///     undo(in_flight.arrived(to, process, frames));       // its answer: Arrived
///
/// A receiver that has answered names the dead process no more. After the last answer the dead
/// process is forgotten.
///
/// Invariant TRANSIT-1: an adopted object belongs to one living process and is freed when that
/// process dies, unless the owner table owns it or its free is under way.
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::agent {

class InFlightRefs {
 public:
  using Process = ProcessIndex;
  /// The number of a frame from one process to another, and how many frames before it wait outside
  /// the ring.
  struct Frame {
    std::uint64_t number = 0;  ///< from 1 on; 0: in none
    std::uint32_t waiting = 0;
  };

  /// Records that `from` has counted `to` for a ref in this frame.
  void counted(Process from, Process to, Frame frame, ObjectId object);
  /// Cancels counted(): the frame leaves without that ref, or not at all.
  void taken_back(Process from, Process to, Frame frame, ObjectId object);
  /// Records that the object at the location belongs to `to` from now on. Returns true when `to`
  /// has died: the caller frees the object.
  bool adopted(Process from, Process to, Frame frame, const wire::Location& location);
  /// Hands the object to the owner table, which frees it. adopted() may follow, and has no effect
  /// then.
  void owned(const wire::Location& location);
  /// Notes that the caller has asked for the object's memory to be freed; nobody else may. Until
  /// gone(), a late adopted() or the death of the process it names does not free it again.
  void freed(const wire::Location& location) { owned(location); }
  /// Forgets the object, whose memory has been freed.
  void gone(const wire::Location& location);

  struct Died {
    std::vector<wire::Location> free;  ///< objects that belonged to the dead process
    std::vector<Process> asked;        ///< arrived() follows from each, or its death
    std::vector<Process> forgotten;    ///< dead processes that no living one names any more
  };
  /// Ends a process. `peers` are the processes with a channel to it: each may name the dead one
  /// until its arrived() or its own death. Precondition: everything that the process published has
  /// been read.
  Died died(Process process, const std::set<Process>& peers = {});
  struct Undone {
    std::vector<ObjectId> counts;  ///< one count of the receiver to return for each
    std::vector<wire::Location> free;
    Process forgotten;  ///< the dead process, if no living one names it any more
  };
  /// Handles `Arrived`: so many frames of the dead process have reached `to`. Returns what was in
  /// later frames.
  Undone arrived(Process to, Process dead, std::uint64_t frames);

  /// Whether the object is known to belong to another process than `who`: adopted, not handed to
  /// the owner table, and not being freed.
  bool is_anothers(Process who, const wire::Location& location) const;
  /// Whether the count is in a frame that may not be in the ring, so that taken_back() is allowed.
  bool gave(Process from, Process to, Frame frame, ObjectId object) const;
  bool is_dead(Process process) const { return dead_.count(process) != 0; }

  std::size_t objects() const noexcept { return objects_.size(); }
  std::size_t refs() const noexcept { return refs_.size(); }
  std::size_t dead() const noexcept { return dead_.size(); }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  struct InFlightRef {
    std::uint64_t frame = 0;
    ObjectId count;  ///< the counted ref; zero for the object at `location`
    wire::Location location;
  };
  struct Object {
    wire::Location location;
    Process owner;  ///< 0: the owner table, or it is to be freed
  };
  static Key key_of(const wire::Location& at) { return {at.segment, at.slot, at.generation}; }
  std::deque<InFlightRef>* refs(Process from, Process to, Frame frame);
  void leave(const Key& key, Object& object);

  std::map<Key, Object> objects_;
  std::map<Process, std::set<Key>> of_;                                  ///< by owner
  std::map<std::pair<Process, Process>, std::deque<InFlightRef>> refs_;  ///< by sender and receiver
  std::map<Process, std::set<Process>> dead_;  ///< the dead → processes that may still name it
};

}  // namespace troupe::agent
