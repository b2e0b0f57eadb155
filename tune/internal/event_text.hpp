/// The texts of events, written and read without a JSON document between. A study of 100,000 trials
/// has half a million of them.
#pragma once

#include "troupe/runtime/base/json_writer.hpp"
#include "troupe/tune/event.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::tune::event_text {

/// By Event::Kind.
inline constexpr std::array<std::string_view, 34> kKindNames = {
    "begin",    "report", "save",      "restore", "end",     "lost",    "room",
    "set",      "stored", "add",       "stop",    "pause",   "resume",  "missing",
    "tick",     "cancel", "interrupt", "created", "started", "exploit", "copied",
    "mismatch", "held",   "yielded",   "paused",  "resumed", "stopped", "completed",
    "retry",    "failed", "best",      "over",    "kept",    "repeated"};
/// By Decision::Action.
inline constexpr std::array<std::string_view, 8> kActionNames = {
    "go_on", "stop", "complete", "yield", "hold", "resume", "exploit", "refuse"};

/// The fields of an Event that a kind writes and reads.
struct Fields {
  bool trial, attempt, step, score, donor, room, can_save, ok, checkpoint, params, donor_params,
      metrics, settings, text;
};
const Fields& fields_of(Event::Kind kind);

/// 100 years in seconds: a log with later times is damaged.
inline constexpr double kLongest = 100.0 * 365 * 24 * 3600;

/// Returns the name of value i of a point.
std::string name_at(const SearchSpace& space, std::size_t i);

/// Appends the line that to_json() returns.
void append(std::string& out, const Event& event, const SearchSpace& space);
/// Writes a number as json_number() makes it.
void put_number(JsonWriter& json, double value);
/// Writes what point_json() returns.
void put_point(JsonWriter& json, const Point& point, const SearchSpace& space);
void put_numbers(JsonWriter& json, const std::map<std::string, double>& numbers);

/// Reads a line as append() writes it with this space: only digits of numbers may differ, without
/// changing their values. Returns nothing for any other text, which may be an event nevertheless.
std::optional<Event> read(std::string_view line, const SearchSpace& space);

}  // namespace troupe::tune::event_text
