/// Control's table of the named objects, which outlive the program that made them. A plain state
/// machine; Service feeds it NameObject.
///
///     auto out = names.on_message({request, NameObject::Verb::detach, what}, from);
///     // its NamedObject leaves once the name is durable
///     out = names.on_message({request, NameObject::Verb::forget, {"weights"}}, from);
///     // ... and ObjectForgotten goes to the keeper, the node that holds the object for its name
///
/// A name leads to an object, to the node that owns the object's record and to the node that holds
/// the object (*keeper*). The name stays until a program forgets it, also when these nodes are
/// dead. A program that opens the object then gets an error that says so. Repeating a request is
/// harmless.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/control/output.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::control {

struct ObjectName {
  std::string name;
  ObjectId object;
  NodeId owner, keeper;
  std::uint64_t fingerprint = 0;  ///< of the value's type
  std::string type;               ///< for people
  JobId job;                      ///< the job that named it
  std::uint64_t bytes = 0;
};

// --- in

struct NameObject {
  enum class Verb : std::uint8_t { detach = 0, find = 1, whose = 2, forget = 3 };
  std::uint64_t request = 0;
  Verb verb = Verb::detach;
  ObjectName what;  ///< detach: all fields; find and forget: the name; whose: the object
};

// --- out

struct NamedObject {
  NodeId to;
  std::uint64_t request = 0;
  bool done = false;  ///< detach: the object has the name; else: there is one (forget: was)
  ObjectName what;    ///< the entry of that name; of a refused detach, the one that has it
  std::shared_ptr<const ErrorInfo> error;
};
/// Tells the keeper of the object that the name is gone.
struct ObjectForgotten {
  NodeId to;
  std::string name;
  ObjectId object;
};
using ObjectNameEvent = std::variant<NamedObject, ObjectForgotten>;

struct ObjectNamesOptions {
  std::size_t max_name = 256;     ///< bytes
  std::size_t max_names = 65536;  ///< then `overloaded`
};

class ObjectNames {
 public:
  using Out = Output<ObjectNameEvent>;
  explicit ObjectNames(ObjectNamesOptions options = {}) : options_(options) {}
  static Result<ObjectNames> recover(Store& store, ObjectNamesOptions options = {});

  Out on_message(const NameObject& message, NodeId from);
  /// Returns whether on_message() would write.
  bool writes(const NameObject& message) const;
  const std::map<std::string, ObjectName>& all() const noexcept { return names_; }

 private:
  void add(ObjectName what);
  void detach(const ObjectName& what, NamedObject& reply, Out& out);
  void forget(const ObjectName& which, NamedObject& reply, Out& out);

  ObjectNamesOptions options_;
  std::map<std::string, ObjectName> names_;
  std::set<std::pair<ObjectId, std::string>> by_object_;
};

}  // namespace troupe::control
