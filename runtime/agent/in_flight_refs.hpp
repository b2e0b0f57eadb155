/// What one process of a node gives to another in frames that the agent does not see: counts of
/// refs, and objects in memory. A plain state machine.
///
/// The sender tells the agent before it publishes the frame. If it dies in between, the receiver
/// has been given what it never hears of. So the sender says with each ref in which of its frames
/// to that process it is, and how many of those before are not in the ring; the agent remembers the
/// refs of frames that may not be there, mostly those of the last one. When the sender has died,
/// each receiver says how many of its frames have come, and what was in later ones goes back.
///
///     in_flight.counted(from, to, frame, object);    // a Hold for another process
///     in_flight.adopted(from, to, frame, location);  // an Adopt; to == from: it keeps it
///     const auto after = in_flight.died(process, peers);  // each of them hears PeerDied, and
///     answers undo(in_flight.arrived(to, process, frames));  // Arrived: what did not come goes back
///
/// Who has answered does not name the dead any more: after the last one it is forgotten.
///
/// Invariant TRANSIT-1: an object that is adopted, not the owner table's and not to be freed
/// already is some living process's, and is freed when that one dies.
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
  using Process = std::uint64_t;
  /// The number of a frame, and of those before it how many wait outside the ring.
  struct Frame {
    std::uint64_t number = 0;  ///< from 1 on; 0: in none
    std::uint32_t waiting = 0;
  };

  void counted(Process from, Process to, Frame frame, ObjectId object);
  /// The frame is not sent as it was to be.
  void taken_back(Process from, Process to, Frame frame, ObjectId object);
  /// True: it is nobody's, since `to` has died.
  bool adopted(Process from, Process to, Frame frame, const wire::Location& location);
  /// From here on the owner table frees it. The adoption may be read later.
  void owned(const wire::Location& location);
  /// It is to be freed, by nobody else. The adoption may be read later, and whom it names may die
  /// before that or before it is carried out.
  void freed(const wire::Location& location) { owned(location); }
  /// That is carried out.
  void gone(const wire::Location& location);

  struct Died {
    std::vector<wire::Location> free;  ///< they were its own
    std::vector<Process> asked;        ///< arrived() follows, or their death
    std::vector<Process> forgotten;    ///< dead ones that nobody names any more
  };
  /// `peers` have a channel to it: each says arrived(), or dies, and may name it until then.
  /// Precondition: all that it published has been read.
  Died died(Process process, const std::set<Process>& peers = {});
  struct Undone {
    std::vector<ObjectId> counts;  ///< one of the receiver's for each
    std::vector<wire::Location> free;
    Process forgotten = 0;  ///< the dead, when nobody names it any more
  };
  /// So many frames of the dead have reached `to`.
  Undone arrived(Process to, Process dead, std::uint64_t frames);

  /// Whether it is known to be another process's: adopted, and neither the owner table's nor to be
  /// freed.
  bool is_anothers(Process who, const wire::Location& location) const;
  /// Whether that count is in a frame that may not be in the ring, so that it may be taken back.
  bool gave(Process from, Process to, Frame frame, ObjectId object) const;
  bool is_dead(Process process) const { return dead_.count(process) != 0; }

  std::size_t objects() const noexcept { return objects_.size(); }
  std::size_t refs() const noexcept { return refs_.size(); }
  std::size_t dead() const noexcept { return dead_.size(); }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  struct InFlightRef {
    std::uint64_t frame = 0;
    ObjectId count;  ///< zero: the object there
    wire::Location location;
  };
  struct Object {
    wire::Location location;
    Process owner = 0;  ///< 0: the owner table, or it is to be freed
  };
  static Key key_of(const wire::Location& at) { return {at.segment, at.slot, at.generation}; }
  std::deque<InFlightRef>* refs(Process from, Process to, Frame frame);
  void leave(const Key& key, Object& object);

  std::map<Key, Object> objects_;
  std::map<Process, std::set<Key>> of_;                                  ///< by owner
  std::map<std::pair<Process, Process>, std::deque<InFlightRef>> refs_;  ///< by sender and receiver
  std::map<Process, std::set<Process>> dead_;  ///< and who may still name it
};

}  // namespace troupe::agent
