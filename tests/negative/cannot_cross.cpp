// expect: a pointer cannot cross to another process
#include "troupe/troupe.hpp"

struct Node {
  int value;
  Node* next;
};
int first(Node n) {
  return n.value;
}
void program(troupe::Context& ctx) {
  auto r = ctx.submit<first>(Node{1, nullptr});
}
