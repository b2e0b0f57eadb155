#include "troupe/train/checkpoint/folder/names.hpp"

#include <algorithm>
#include <charconv>

namespace troupe::train {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTensors = ".safetensors";

std::string padded(long number, std::size_t width) {
  std::string text = std::to_string(number);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

const char* name_of(FileKind kind) noexcept {
  return kind == FileKind::model ? "model" : "optimizer";
}

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

bool is_letter_or_digit(char c) noexcept {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

std::string step_folder_name(long step) {
  return std::string(kStep) + padded(step, 8);
}

std::optional<long> step_of_folder(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return std::nullopt;
  long step = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (problem != std::errc{} || step_folder_name(step) != name) return std::nullopt;
  return step;
}

std::string writing_folder_name(long step, std::string_view id) {
  return "." + step_folder_name(step) + "." + std::string(id) + ".tmp";
}

bool is_writing_folder(std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.starts_with('.') || !name.ends_with(kEnd)) return false;
  const std::string_view middle = name.substr(1, name.size() - 1 - kEnd.size());
  const std::size_t dot = middle.find('.');
  return dot != std::string_view::npos && dot + 1 < middle.size() &&
         step_of_folder(middle.substr(0, dot)).has_value();
}

std::string skipped_folder_name(long step, std::string_view id) {
  return step_folder_name(step) + ".skipped-" + std::string(id);
}

std::string tensor_file_name(FileKind kind, int number, int of) {
  return std::string(name_of(kind)) + "-" + padded(number, 5) + "-of-" + padded(of, 5) +
         std::string(kTensors);
}

std::optional<FileKind> kind_of_file(std::string_view name) {
  for (const FileKind kind : {FileKind::model, FileKind::optimizer}) {
    const std::string_view begin = name_of(kind);
    if (!name.starts_with(begin) || !name.ends_with(kTensors)) continue;
    const std::string_view middle =
        name.substr(begin.size(), name.size() - begin.size() - kTensors.size());
    const std::size_t of = middle.find("-of-");
    if (!middle.starts_with('-') || of == std::string_view::npos) continue;
    const std::string_view number = middle.substr(1, of - 1), all = middle.substr(of + 4);
    if (number.size() < 5 || all.size() < 5) continue;
    if (std::all_of(number.begin(), number.end(), is_digit) &&
        std::all_of(all.begin(), all.end(), is_digit))
      return kind;
  }
  return std::nullopt;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
         });
}

}  // namespace troupe::train
