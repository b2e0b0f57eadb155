/// The names of objects that outlive the program that made them. A plain state machine of control.
///
///     auto out = names.on_message({request, NameObject::Verb::detach, what}, from);
///     // its NamedObject leaves once the name is durable
///     out = names.on_message({request, NameObject::Verb::forget, {"weights"}}, from);
///     // ... and here ObjectForgotten to the node that holds the object for the name's sake
///
/// A name leads to an object, to the node that owns its record and to the one that holds it
/// (*keeper*). Neither need live: the name stays until somebody lets go of it, and who asks for the
/// value is told what became of it. Repeating a request is harmless.
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
  JobId job;                      ///< whose program named it
  std::uint64_t bytes = 0;
};

// --- in

struct NameObject {
  enum class Verb : std::uint8_t { detach = 0, find = 1, whose = 2, forget = 3 };
  std::uint64_t request = 0;
  Verb verb = Verb::detach;
  ObjectName what;  ///< detach; else its name, or for whose its object, alone
};

// --- out

struct NamedObject {
  NodeId to;
  std::uint64_t request = 0;
  bool done = false;  ///< it has the name; there is one, or was
  ObjectName what;    ///< that has it, or had it
  std::shared_ptr<const ErrorInfo> error;
};
/// To its keeper.
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
  /// Whether it would write.
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
