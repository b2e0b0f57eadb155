/// The verb `troupe doctor`: it saves what can be read of a damaged data folder.
#include "troupe/runtime/cli/internal/print.hpp"
#include "troupe/runtime/cli/verbs.hpp"
#include "troupe/runtime/control/salvage.hpp"

#include <cstdio>

namespace troupe::cli {
namespace {

Json document(const control::Salvage& seen, const DoctorRequest& request) {
  Json result = {{"folder", request.salvage},
                 {"damaged", seen.damaged},
                 {"why", seen.why},
                 {"bytes", seen.bytes},
                 {"last_commit", seen.last_commit},
                 {"marked_commit", seen.marked_commit},
                 {"records", Json::object()},
                 {"notes", seen.notes}};
  for (const auto& [kind, count] : seen.records) result["records"][kind] = count;
  if (!request.to.empty()) result["written_to"] = request.to;
  return result;
}

void tell(const control::Salvage& seen, const DoctorRequest& request) {
  if (!seen.damaged)
    std::printf("%s is whole: control starts on it as it is.\n", request.salvage.c_str());
  else
    std::printf("%s\n", seen.why.c_str());
  std::string kinds;
  for (const auto& [kind, count] : seen.records)
    kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + " " + kind;
  std::printf("Can be read: %s (%llu bytes).\n", kinds.empty() ? "no record" : kinds.c_str(),
              static_cast<unsigned long long>(seen.bytes));
  for (const std::string& note : seen.notes) std::printf("Cannot be read: %s\n", note.c_str());
  if (seen.marked_commit > seen.last_commit)
    std::printf("The last commit found is %llu; %llu was acknowledged.\n",
                static_cast<unsigned long long>(seen.last_commit),
                static_cast<unsigned long long>(seen.marked_commit));
  if (seen.damaged)
    std::printf(
        "Records that were acknowledged may be missing, and such as were deleted last may be there "
        "again.\n");
  if (request.to.empty())
    std::printf("Nothing was written: name a new folder with --to.\n");
  else
    std::printf("Written to %s: start with `troupe up --data-folder %s`.\n", request.to.c_str(),
                request.to.c_str());
}

}  // namespace

Exit doctor(const DoctorRequest& request) {
  const control::Salvage seen = control::salvage_store(request.salvage, request.to).value();
  if (request.json)
    print(document(seen, request));
  else
    tell(seen, request);
  return Exit::ok;
}

}  // namespace troupe::cli
