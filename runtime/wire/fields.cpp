#include "internal/fields.hpp"

namespace troupe::wire::internal {

void refuse(const char* field, const char* why) {
  throw Error(Code::invalid_argument, std::string("a message's ") + field + " " + why);
}

void refuse_count(const char* field, std::size_t count, std::size_t bound) {
  refuse(field,
         ("has " + std::to_string(count) + " entries, more than " + std::to_string(bound)).c_str());
}

void unsupported(unsigned member) {
  throw Error(Code::unavailable, "unsupported message " + std::to_string(member));
}

CutText::CutText(const std::string& text, std::size_t bound) : text_(text) {
  if (text.size() <= bound) return;
  std::size_t end = bound;
  // A byte 10xxxxxx continues a UTF-8 sequence, which has at most four bytes.
  for (int i = 0; i < 3 && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80; ++i)
    --end;
  cut_ = text.substr(0, end);
}

std::string read_text(capnp::Text::Reader in, const char* field, std::size_t bound) {
  if (in.size() > bound)
    refuse(field,
           ("has " + std::to_string(in.size()) + " bytes, more than " + std::to_string(bound))
               .c_str());
  return std::string(in.begin(), in.size());
}

void write(Texts::Builder out, const std::vector<std::string>& texts, std::size_t bound) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, CutText(texts[i], bound));
}

void read_texts(Texts::Reader in, std::vector<std::string>& texts, const char* field,
                std::size_t bound) {
  texts.reserve(bounded(in.size(), kMaxRows, field));
  for (const auto text : in) texts.push_back(read_text(text, field, bound));
}

void write(capnp::List<std::int32_t>::Builder out, const std::vector<std::int32_t>& gpus) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, gpus[i]);
}

void read(capnp::List<std::int32_t>::Reader in, std::vector<std::int32_t>& gpus) {
  gpus.resize(bounded(in.size(), kMaxGpus, "gpus"));
  for (unsigned i = 0; i < in.size(); ++i) gpus[i] = in[i];
}

void write(schema::ListQuestion::Builder out, const ListQuestion& m) {
  out.setKind(m.kind);
  out.setLimit(m.limit);
  if (!m.where.empty()) out.setWhere(CutText(m.where));
  if (!m.sort.empty()) out.setSort(CutText(m.sort));
  if (!m.after.empty()) out.setAfter(CutText(m.after));
}
void read(schema::ListQuestion::Reader in, ListQuestion& m) {
  m.kind = in.getKind();
  m.limit = in.getLimit();
  m.where = read_text(in.getWhere(), "where");
  m.sort = read_text(in.getSort(), "sort");
  m.after = read_text(in.getAfter(), "after");
}

void write(schema::Location::Builder out, const Location& location) {
  out.setSegment(location.segment);
  out.setSlot(location.slot);
  out.setGeneration(location.generation);
  out.setExtent(location.extent);
  out.setOffsetBytes(location.offset);
  out.setLengthBytes(location.length);
}

void read(schema::Location::Reader in, Location& location) {
  location.segment = in.getSegment();
  location.slot = in.getSlot();
  location.generation = in.getGeneration();
  location.extent = in.getExtent();
  location.offset = in.getOffsetBytes();
  location.length = in.getLengthBytes();
}

// --- errors ---

namespace {

/// Stack and last lines are left out: they get what the others leave.
std::size_t text_of(const ErrorInfo& e) noexcept {
  return std::min(e.message.size(), kMaxText) + std::min(e.origin.node.size(), kMaxText) +
         std::min(e.origin.function.size(), kMaxText) + std::min(e.type.size(), kMaxText);
}

/// Returns the last whole lines of at most `most` bytes.
std::string_view end_of(std::string_view lines, std::size_t most) noexcept {
  if (lines.size() <= most) return lines;
  const auto newline = lines.find('\n', lines.size() - most - 1);
  return newline == std::string_view::npos ? std::string_view() : lines.substr(newline + 1);
}

}  // namespace

unsigned entries_of(const std::shared_ptr<const ErrorInfo>& error) noexcept {
  unsigned count = 0;
  std::size_t text = 0;
  for (const ErrorInfo* e = error.get(); e != nullptr && count < kMaxCauses; e = e->cause.get()) {
    text += text_of(*e);
    // The outermost error always stays; write_error() cuts its texts to fit.
    if (count > 0 && text > kMaxErrorText) break;
    ++count;
  }
  return count;
}

void write_error(Errors::Builder out, const ErrorInfo& error) {
  std::size_t left = kMaxErrorText;
  const auto fit = [](const std::string& text, std::size_t bound, std::size_t& room) {
    CutText part(text, std::min(bound, room));
    room -= part.size();
    return part;
  };
  std::size_t texts = 0;
  const ErrorInfo* e = &error;
  for (unsigned i = 0; i < out.size(); ++i, e = e->cause.get()) texts += text_of(*e);
  std::size_t spare = kMaxErrorText - std::min(texts, kMaxErrorText);
  left -= spare;
  e = &error;
  for (unsigned i = 0; i < out.size(); ++i, e = e->cause.get()) {
    schema::ErrorEntry::Builder entry = out[i];
    entry.setCode(static_cast<std::uint16_t>(e->code));
    entry.setOutcome(static_cast<std::uint8_t>(e->outcome));
    entry.setPid(e->origin.pid);
    entry.setAttempt(e->origin.attempt);
    if (!e->message.empty()) entry.setMessage(fit(e->message, kMaxText, left));
    if (!e->origin.node.empty()) entry.setNode(fit(e->origin.node, kMaxText, left));
    if (!e->origin.function.empty()) entry.setFunction(fit(e->origin.function, kMaxText, left));
    if (!e->type.empty()) entry.setType(fit(e->type, kMaxText, left));
    if (!e->remote_stack.empty()) entry.setRemoteStack(fit(e->remote_stack, kMaxStack, spare));
    if (const auto lines = end_of(e->last_lines, std::min(kMaxLastLines, spare)); !lines.empty())
      entry.setLastLines(fit(std::string(lines), kMaxLastLines, spare));
  }
}

namespace {

ErrorInfo read_entry(schema::ErrorEntry::Reader in, std::size_t& left) {
  const auto text = [&left](capnp::Text::Reader from, const char* field, std::size_t bound) {
    std::string s = read_text(from, field, std::min(bound, left));
    left -= s.size();
    return s;
  };
  ErrorInfo e;
  e.code = static_cast<Code>(in.getCode());
  if (in.getOutcome() > static_cast<std::uint8_t>(Outcome::unknown))
    refuse("error outcome", "is out of range");
  e.outcome = static_cast<Outcome>(in.getOutcome());
  e.origin.pid = in.getPid();
  e.origin.attempt = in.getAttempt();
  e.message = text(in.getMessage(), "error message", kMaxText);
  e.origin.node = text(in.getNode(), "error node", kMaxText);
  e.origin.function = text(in.getFunction(), "error function", kMaxText);
  e.type = text(in.getType(), "error type", kMaxText);
  e.remote_stack = text(in.getRemoteStack(), "error stack", kMaxStack);
  e.last_lines = text(in.getLastLines(), "last lines", kMaxLastLines);
  return e;
}

}  // namespace

std::shared_ptr<const ErrorInfo> read_error(Errors::Reader in) {
  std::vector<ErrorInfo> chain;
  std::size_t left = kMaxErrorText;
  chain.reserve(bounded(in.size(), kMaxCauses, "error chain"));
  for (const auto entry : in) chain.push_back(read_entry(entry, left));
  std::shared_ptr<const ErrorInfo> error;
  for (auto e = chain.rbegin(); e != chain.rend(); ++e) {
    e->cause = std::move(error);
    error = std::make_shared<const ErrorInfo>(std::move(*e));
  }
  return error;
}

// --- demands ---

std::int64_t read_amount(std::int64_t amount, const char* field) {
  if (amount < 0) refuse(field, "is negative");
  return amount;
}

void write(Amounts::Builder out, const std::vector<std::pair<std::string, std::int64_t>>& amounts) {
  for (unsigned i = 0; i < out.size(); ++i) {
    out[i].setName(CutText(amounts[i].first));
    out[i].setTenThousandths(amounts[i].second);
  }
}

void read(Amounts::Reader in, std::vector<std::pair<std::string, std::int64_t>>& amounts) {
  amounts.reserve(bounded(in.size(), kMaxResources, "resources"));
  for (const auto amount : in)
    amounts.emplace_back(read_text(amount.getName(), "resource name"),
                         read_amount(amount.getTenThousandths(), "resource amount"));
}

void write(schema::ResourceDemand::Builder out, const ResourceDemand& demand) {
  out.setCpuTenThousandths(demand.cpus);
  out.setGpuTenThousandths(demand.gpus);
  out.setMemoryBytes(demand.memory_bytes);
  if (!demand.resources.empty())
    write(out.initResources(checked(demand.resources.size(), kMaxResources)), demand.resources);
  if (!demand.labels.empty()) {
    auto labels = out.initLabels(checked(demand.labels.size(), kMaxLabels));
    for (unsigned i = 0; i < labels.size(); ++i) {
      labels[i].setKey(CutText(demand.labels[i].first));
      labels[i].setValue(CutText(demand.labels[i].second));
    }
  }
  out.setPlacement(demand.placement);
  if (demand.node) write(out.initNode(), demand.node);
  out.setSoft(demand.soft);
}

void read(schema::ResourceDemand::Reader in, ResourceDemand& demand) {
  constexpr std::uint8_t kPlacements = 4;
  demand.cpus = read_amount(in.getCpuTenThousandths(), "cpus");
  demand.gpus = read_amount(in.getGpuTenThousandths(), "gpus");
  demand.memory_bytes = in.getMemoryBytes();
  read(in.getResources(), demand.resources);
  const auto labels = in.getLabels();
  demand.labels.reserve(bounded(labels.size(), kMaxLabels, "labels"));
  for (const auto label : labels)
    demand.labels.emplace_back(read_text(label.getKey(), "label key"),
                               read_text(label.getValue(), "label value"));
  demand.placement = in.getPlacement();
  if (demand.placement >= kPlacements) refuse("placement", "is out of range");
  read(in.getNode(), demand.node);
  demand.soft = in.getSoft();
}

// --- values and calls ---

namespace {

void write_held(schema::SharedRefs::Builder out, const Value& value) {
  write(out.initAt(), value.location);
  auto refs = out.initRefs(checked(value.refs.size(), kMaxRefs));
  for (unsigned i = 0; i < refs.size(); ++i) write(refs[i], value.refs[i]);
}

void read_held(const schema::SharedRefs::Reader& in, Value& value) {
  read(in.getAt(), value.location);
  const auto refs = in.getRefs();
  value.refs.resize(bounded(refs.size(), kMaxRefs, "refs"));
  for (unsigned i = 0; i < refs.size(); ++i) read(refs[i], value.refs[i]);
}

}  // namespace

void write(schema::Value::Builder out, const Value& value) {
  switch (value.kind) {
    case Value::Kind::pending: out.setPending(); return;
    case Value::Kind::inline_bytes: {
      out.setOffsetBytes(value.payload_offset);
      out.setSizeBytes(value.payload_size);
      if (value.refs.empty()) {
        out.adoptInlineBytes({});
        return;
      }
      auto refs = out.initInlineBytes(checked(value.refs.size(), kMaxRefs));
      for (unsigned i = 0; i < refs.size(); ++i) write(refs[i], value.refs[i]);
      return;
    }
    case Value::Kind::shared:
      out.setRefCount(value.ref_count);
      if (value.refs.empty()) return write(out.initShared(), value.location);
      return write_held(out.initSharedRefs(), value);
    case Value::Kind::error:
      TROUPE_ASSERT(value.error, "a value of kind error has an error");
      write_error(out.initError(entries_of(value.error)), *value.error);
      return;
    case Value::Kind::forwarded: write(out.initForwarded(), value.forward); return;
    case Value::Kind::remote:
      out.setRemoteBytes(value.remote_bytes);
      out.setRefCount(value.ref_count);
      return;
  }
}

namespace {

void read_inline(const schema::Value::Reader& in, Value& value, std::size_t payload_size) {
  const std::uint32_t offset = in.getOffsetBytes();
  const std::uint32_t size = in.getSizeBytes();
  if (size > kInlineValue) refuse("inline value", "is too large");
  if (offset > payload_size || size > payload_size - offset)
    refuse("inline value", "reaches beyond the payload");
  value.kind = Value::Kind::inline_bytes;
  value.payload_offset = offset;
  value.payload_size = size;
  if (!in.hasInlineBytes()) return;
  const auto refs = in.getInlineBytes();
  value.refs.resize(bounded(refs.size(), kMaxRefs, "refs"));
  for (unsigned i = 0; i < refs.size(); ++i) read(refs[i], value.refs[i]);
}

}  // namespace

void read(const schema::Value::Reader& in, Value& value, std::size_t payload_size) {
  switch (in.which()) {
    case schema::Value::PENDING: value.kind = Value::Kind::pending; return;
    case schema::Value::INLINE_BYTES: return read_inline(in, value, payload_size);
    case schema::Value::SHARED:
      value.kind = Value::Kind::shared;
      read(in.getShared(), value.location);
      value.ref_count = in.getRefCount();
      return;
    case schema::Value::ERROR:
      value.kind = Value::Kind::error;
      value.error = read_error(in.getError());
      if (!value.error) refuse("error value", "has no error");
      return;
    case schema::Value::FORWARDED:
      value.kind = Value::Kind::forwarded;
      read(in.getForwarded(), value.forward);
      return;
    case schema::Value::REMOTE_BYTES:
      value.kind = Value::Kind::remote;
      value.remote_bytes = in.getRemoteBytes();
      value.ref_count = in.getRefCount();
      return;
    case schema::Value::SHARED_REFS:
      value.kind = Value::Kind::shared;
      read_held(in.getSharedRefs(), value);
      value.ref_count = in.getRefCount();
      return;
  }
  refuse("value", "is of an unknown kind");
}

void write(schema::Call::Builder out, const Call& call) {
  out.setSequence(call.sequence);
  out.setFunctionModule(call.function.module);
  out.setFunctionOffsetBytes(call.function.offset);
  out.setActorLow(call.actor_low);
  out.setAttempt(call.attempt);
  out.setResults(call.results);
  if (call.arguments.empty()) return;
  auto arguments = out.initArguments(checked(call.arguments.size(), kMaxArguments));
  for (unsigned i = 0; i < arguments.size(); ++i) write(arguments[i], call.arguments[i]);
}

void read(const schema::Call::Reader& in, Call& call, std::size_t payload_size) {
  call.sequence = in.getSequence();
  call.function.module = in.getFunctionModule();
  call.function.offset = in.getFunctionOffsetBytes();
  call.actor_low = in.getActorLow();
  call.attempt = in.getAttempt();
  call.results = in.getResults();
  const auto arguments = in.getArguments();
  // assign() with a copy is faster than resize(): g++ zeroes each new Value by `rep stos`.
  static const Value kNone;
  call.arguments.assign(bounded(arguments.size(), kMaxArguments, "arguments"), kNone);
  for (unsigned i = 0; i < arguments.size(); ++i) {
    Value& argument = call.arguments[i];
    read(arguments[i], argument, payload_size);
    if (argument.kind == Value::Kind::pending) refuse("argument", "has no value");
  }
}

void write(schema::CreateActor::Builder out, const CreateActor& m) {
  write(out.initActor(), m.actor);
  write(out.initLifetime(), m.lifetime);
  out.setName(CutText(m.name));
  out.setNameSpace(CutText(m.name_space));
  out.setClassName(CutText(m.class_name));
  out.setDetached(m.detached);
  out.setGetIfExists(m.get_if_exists);
  out.setMaxRestarts(m.max_restarts);
  out.setRestartWindowNs(m.restart_window_ns);
  out.setMaxConcurrency(m.max_concurrency);
  write(out.initDemand(), m.demand);
  write(out.initCreation(), m.creation);
  out.setRequest(m.request);
}
void read(schema::CreateActor::Reader in, CreateActor& m, std::size_t payload_size) {
  read(in.getActor(), m.actor);
  read(in.getLifetime(), m.lifetime);
  m.name = read_text(in.getName(), "actor name");
  m.name_space = read_text(in.getNameSpace(), "name space");
  m.class_name = read_text(in.getClassName(), "class name");
  m.detached = in.getDetached();
  m.get_if_exists = in.getGetIfExists();
  m.max_restarts = in.getMaxRestarts();
  m.restart_window_ns = in.getRestartWindowNs();
  m.max_concurrency = in.getMaxConcurrency();
  read(in.getDemand(), m.demand);
  read(in.getCreation(), m.creation, payload_size);
  m.request = in.getRequest();
}

}  // namespace troupe::wire::internal
