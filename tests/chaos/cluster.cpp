#include "tests/chaos/cluster.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace chaos {

using nlohmann::json;
using namespace std::chrono_literals;

namespace {

json document_of(Child& child, const char* what) {
  const json document = json::parse(read_all(child.out, 30s), nullptr, false);
  if (!document.is_object() || !document.contains("cluster"))
    throw std::runtime_error(std::string(what) + " did not start: " +
                             (document.is_object() ? document.dump() : "no word of it"));
  return document;
}

}  // namespace

std::string list(const std::string& command, const std::string& what, const std::string& file,
                 const std::string& log) {
  Child child = chaos::start({command, "list", what, "--json", "--address", file}, {}, log, false);
  std::string text = read_all(child.out, 10s);
  if (wait_for(child.pid, 5s) != 0) text.clear();
  close_ends(child);
  return text;
}

Cluster::~Cluster() {
  close_ends(head_);
  for (Child& child : others_) close_ends(child);
}

std::vector<std::pair<std::string, std::string>> Cluster::variables() const {
  std::vector<std::pair<std::string, std::string>> all{
      {"XDG_CACHE_HOME", setup_.folder + "/cache"}, {"XDG_STATE_HOME", setup_.folder + "/state"}};
  if (setup_.shim.empty()) return all;
  all.emplace_back("LD_PRELOAD", setup_.shim);
  all.emplace_back(kPageVariable, setup_.page);
  return all;
}

Child Cluster::up(std::vector<std::string> arguments) {
  std::vector<std::string> all{setup_.command, "up",     "--memory",
                               setup_.memory,  "--cpus", std::to_string(setup_.cpus)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return chaos::start(all, variables(), log_, true);
}

void Cluster::start(int nodes) {
  static int clusters = 0;
  const std::string prefix = setup_.folder + "/cluster-" + std::to_string(++clusters);
  log_ = prefix + ".log";
  head_ = up(
      {"--nodes", "2", "--join-tokens", "16", "--data-folder", data_, "--file", prefix + ".json"});
  const json document = document_of(head_, "the cluster");
  id_ = document["cluster"];
  for (const auto& token : document["join_tokens"]) tokens_.push_back(token);
  for (const auto& one : document["nodes"]) {
    Node node{one["id"],      one["name"], prefix + ".json", one["pid"], head_.pid,
              nodes_.empty(), true};
    nodes_.push_back(std::move(node));
  }
  for (int i = 2; i < nodes; ++i)
    if (!add_node()) throw std::runtime_error("no join token is left");
}

bool Cluster::add_node() {
  if (tokens_.empty()) return false;
  const std::string file = log_ + "." + std::to_string(++made_) + ".json";
  Child child = up({"--join", "-", "--file", file});
  const std::string token = tokens_.back() + "\n";
  tokens_.pop_back();
  (void)!::write(child.in, token.data(), token.size());
  const json document = document_of(child, "a node that joins");
  const json& one = document["nodes"][0];
  nodes_.push_back({one["id"], one["name"], file, one["pid"], child.pid, false, true});
  others_.push_back(child);
  return true;
}

Node* Cluster::of_agent(int pid) {
  for (Node& node : nodes_)
    if (node.agent == pid) return &node;
  return nullptr;
}

void Cluster::forget_dead() {
  nodes_.erase(std::remove_if(nodes_.begin(), nodes_.end(),
                              [](const Node& node) { return !is_alive(node.agent); }),
               nodes_.end());
}

bool Cluster::is_whole() const {
  const json document =
      json::parse(list(setup_.command, "nodes", nodes_.front().file, setup_.folder + "/list.log"),
                  nullptr, false);
  if (!document.is_object()) return false;
  json rows = json::array();  // of nodes that have neither died nor left
  for (const json& row : document["rows"])
    if (row["state"] != "dead" && row["state"] != "left") rows.push_back(row);
  if (rows.size() != nodes_.size()) return false;
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return std::any_of(rows.begin(), rows.end(), [&](const json& row) {
      return row["id"] == node.id && row["state"] != "suspect";
    });
  });
}

int Cluster::control() const {
  for (const Process& process : descendants())
    if (process.parent == head_.pid && process.name == "troupe-control") return process.pid;
  return 0;
}

std::string Cluster::stop() {
  std::string why;
  const auto end = [&](const Child& child, const char* whose) {
    if (!hit(child.pid, SIGTERM)) return;
    const int code = wait_for(child.pid, 15s);
    if (code == 0) return;
    why = std::string("the launcher of ") + whose + ", process " + std::to_string(child.pid);
    why += code < 0 ? ", did not end" : ", ended with " + std::to_string(code);
  };
  for (const Child& child : others_)
    if (is_alive(child.pid)) end(child, "a node that joined");
  end(head_, "the head");
  return why;
}

}  // namespace chaos
